/* The rules of MIG as a driver keeps them: room, order of destruction, who is in the way, and what calls cost. */
#include "state.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static int state_fd = -1;
static struct state *mapped = NULL;
static char mapped_path[4096];

struct state *open_state(void)
{
    const char *path = getenv("MIGRATOR_STANDIN");
    struct stat found;
    if (path == NULL)
        return NULL;
    if (mapped != NULL && strcmp(path, mapped_path) == 0)
        return mapped;
    if (mapped != NULL) { /* a test that goes on with another stand-in in the same process */
        munmap(mapped, sizeof(struct state));
        close(state_fd);
        mapped = NULL;
    }
    if (strlen(path) >= sizeof mapped_path || (state_fd = open(path, O_RDWR | O_CLOEXEC)) < 0)
        return NULL;
    if (fstat(state_fd, &found) != 0 || found.st_size != sizeof(struct state))
        return NULL;
    struct state *s = mmap(NULL, sizeof(struct state), PROT_READ | PROT_WRITE, MAP_SHARED, state_fd, 0);
    if (s == MAP_FAILED || s->magic != STATE_MAGIC || s->version != STATE_VERSION || s->size != sizeof(struct state))
        return NULL;
    strcpy(mapped_path, path);
    return mapped = s;
}

void lock_state(void) { flock(state_fd, LOCK_EX); }
void unlock_state(void) { flock(state_fd, LOCK_UN); }

static uint64_t next_random(struct state *s) /* splitmix64 */
{
    uint64_t z = (s->random += 0x9e3779b97f4a7c15ull);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

static void spend(struct state *s, uint64_t us)
{
    s->n_calls++;
    s->clock_us += us;
    uint64_t really = us * s->sleep_per_mille / 1000;
    if (really > 0) { /* others may look meanwhile, as at a driver that works */
        struct timespec wait = {(time_t)(really / 1000000), (long)(really % 1000000) * 1000};
        unlock_state();
        nanosleep(&wait, NULL);
        lock_state();
    }
}

/* The first fault that hits a call of this kind; NULL if none does. */
static struct fault *fault_of(struct state *s, uint32_t op)
{
    for (uint32_t k = 0; k < s->n_faults; k++) {
        struct fault *f = &s->faults[k];
        if (f->op != op)
            continue;
        if (f->count > 0) {
            f->count--;
            return f;
        }
        if (f->per_mille > 0 && next_random(s) % 1000 < f->per_mille)
            return f;
    }
    return NULL;
}

static int obstacle(const struct state *s, const struct gpu *g)
{
    if (!s->driver_loaded)
        return DRIVER_NOT_LOADED;
    return g->lost ? GPU_IS_LOST : OK;
}

int read_fault(struct state *s, struct gpu *g)
{
    struct fault *f = fault_of(s, OP_READ);
    int code = obstacle(s, g);
    return code != OK ? code : f == NULL ? OK : (int)f->code;
}

int process_fault(struct state *s)
{
    struct fault *f = fault_of(s, OP_PROCESSES);
    return f == NULL ? OK : (int)f->code;
}

const struct profile *profile_by_id(const struct gpu *g, uint32_t id)
{
    for (uint32_t k = 0; k < g->n_profiles; k++)
        if (g->profiles[k].id == id)
            return &g->profiles[k];
    return NULL;
}

struct gi *gi_by_id(struct gpu *g, uint32_t id)
{
    for (int k = 0; k < MAX_GIS; k++)
        if (g->gis[k].used && g->gis[k].id == id)
            return &g->gis[k];
    return NULL;
}

struct ci *ci_by_id(struct gi *i, uint32_t id)
{
    for (int k = 0; k < MAX_CIS; k++)
        if (i->cis[k].used && i->cis[k].id == id)
            return &i->cis[k];
    return NULL;
}

static int is_free(const struct gpu *g, const struct profile *p, uint32_t start)
{
    uint32_t compute = p->compute_slices, same = 0;
    for (int k = 0; k < MAX_GIS; k++) {
        const struct gi *other = &g->gis[k];
        if (!other->used)
            continue;
        const struct profile *q = &g->profiles[other->profile];
        compute += q->compute_slices;
        same += q == p;
        if (other->start < start + p->memory_slices && start < other->start + q->memory_slices)
            return 0;
    }
    return compute <= g->compute_slices && same < p->max_instances;
}

/* Left to choose, the driver takes the last start that is free: so 1g, 1g, 2g leave no room for a 3g. */
static int64_t chosen_start(const struct gpu *g, const struct profile *p)
{
    for (uint32_t k = p->n_starts; k-- > 0;)
        if (is_free(g, p, p->starts[k]))
            return p->starts[k];
    return -1;
}

static int starts_at(const struct profile *p, int64_t start)
{
    for (uint32_t k = 0; k < p->n_starts; k++)
        if (p->starts[k] == start)
            return 1;
    return 0;
}

uint32_t remaining_gis(const struct gpu *g, const struct profile *p)
{
    struct gpu *copy = malloc(sizeof *copy);
    uint32_t n = 0;
    int64_t start;
    if (copy == NULL)
        return 0;
    *copy = *g;
    const struct profile *own = &copy->profiles[p - g->profiles];
    while ((start = chosen_start(copy, own)) >= 0) {
        int k = 0;
        while (k < MAX_GIS && copy->gis[k].used)
            k++;
        if (k == MAX_GIS)
            break;
        copy->gis[k].used = 1;
        copy->gis[k].profile = (uint32_t)(own - copy->profiles);
        copy->gis[k].start = (uint32_t)start;
        n++;
    }
    free(copy);
    return n;
}

/* Small ids, drawn anew for every instance: no function of the placement, and they come again. */
static uint32_t unused_id(struct state *s, struct gpu *g)
{
    uint32_t id;
    do
        id = 1 + (uint32_t)(next_random(s) % (MAX_GIS - 1));
    while (gi_by_id(g, id) != NULL);
    return id;
}

int create_gi(struct state *s, struct gpu *g, const struct profile *p, int64_t start, struct gi **made)
{
    int code = obstacle(s, g);
    if (code != OK)
        return code;
    if (!g->mig_current)
        return NOT_SUPPORTED;
    if (!s->permitted)
        return NO_PERMISSION;
    if (p == NULL || (start >= 0 && !starts_at(p, start)))
        return INVALID_ARGUMENT;
    spend(s, p->create_us);
    struct fault *f = fault_of(s, OP_CREATE_GI);
    if (f != NULL && !f->after_effect)
        return (int)f->code;
    if (start < 0)
        start = chosen_start(g, p);
    if (start < 0 || !is_free(g, p, (uint32_t)start))
        return INSUFFICIENT_RESOURCES;
    for (int k = 0; k < MAX_GIS; k++)
        if (!g->gis[k].used) {
            struct gi *i = &g->gis[k];
            uint32_t id = unused_id(s, g);
            memset(i, 0, sizeof *i);
            i->id = id;
            i->profile = (uint32_t)(p - g->profiles);
            i->start = (uint32_t)start;
            i->used = 1;
            g->n_changes++;
            *made = i;
            return f == NULL ? OK : (int)f->code;
        }
    return INSUFFICIENT_RESOURCES;
}

int destroy_gi(struct state *s, struct gpu *g, struct gi *i)
{
    int code = obstacle(s, g);
    if (code != OK)
        return code;
    if (!s->permitted)
        return NO_PERMISSION;
    spend(s, g->profiles[i->profile].destroy_us);
    if (!i->used)
        return NOT_FOUND;
    struct fault *f = fault_of(s, OP_DESTROY_GI);
    if (f != NULL && !f->after_effect)
        return (int)f->code;
    for (int k = 0; k < MAX_CIS; k++)
        if (i->cis[k].used)
            return IN_USE;
    if (i->stuck > 0) {
        i->stuck--;
        return IN_USE;
    }
    i->used = 0;
    g->n_changes++;
    return f == NULL ? OK : (int)f->code;
}

/* Compute-instance profiles: 0 … 4 are 1, 2, 3, 4 and 7 slices, 6 is 6; 7 is the whole of a double-memory 1g. */
uint32_t ci_slices_of(uint32_t ci_profile)
{
    static const uint32_t slices[] = {1, 2, 3, 4, 7, 8, 6, 1};
    return ci_profile < sizeof slices / sizeof slices[0] ? slices[ci_profile] : 0;
}

uint32_t ci_span_of(const struct profile *p, uint32_t ci_profile)
{
    return ci_profile == p->ci_profile ? p->ci_span : ci_slices_of(ci_profile);
}

uint32_t free_ci_slices(const struct gpu *g, const struct gi *i)
{
    uint32_t taken = 0;
    for (int k = 0; k < MAX_CIS; k++)
        taken += i->cis[k].used ? i->cis[k].slices : 0;
    return g->profiles[i->profile].compute_slices - taken;
}

static int ci_room(const struct gi *i, uint32_t start, uint32_t span)
{
    for (int k = 0; k < MAX_CIS; k++) {
        const struct ci *other = &i->cis[k];
        if (other->used && other->start < start + span && start < other->start + other->span)
            return 0;
    }
    return 1;
}

int create_ci(struct state *s, struct gpu *g, struct gi *i, uint32_t ci_profile, int64_t start, struct ci **made)
{
    const struct profile *p = &g->profiles[i->profile];
    uint32_t slices = ci_slices_of(ci_profile), span = ci_span_of(p, ci_profile);
    int code = obstacle(s, g);
    if (code != OK)
        return code;
    if (!s->permitted)
        return NO_PERMISSION;
    if (slices == 0 || slices > p->compute_slices)
        return INVALID_ARGUMENT;
    spend(s, p->create_us / 10);
    struct fault *f = fault_of(s, OP_CREATE_CI);
    if (f != NULL && !f->after_effect)
        return (int)f->code;
    if (free_ci_slices(g, i) < slices)
        return INSUFFICIENT_RESOURCES;
    uint32_t at = start < 0 ? 0 : (uint32_t)start, end = p->ci_span;
    while (start < 0 && at + span <= end && !ci_room(i, at, span))
        at++;
    if (at + span > end || !ci_room(i, at, span))
        return INSUFFICIENT_RESOURCES;
    for (uint32_t k = 0; k < MAX_CIS; k++)
        if (!i->cis[k].used) {
            struct ci *c = &i->cis[k];
            uint64_t a = next_random(s), b = next_random(s);
            memset(c, 0, sizeof *c);
            c->id = k;
            c->slices = slices;
            c->start = at;
            c->span = span;
            c->profile = ci_profile;
            snprintf(c->uuid, sizeof c->uuid, "MIG-%08x-%04x-5%03x-%04x-%012llx", (unsigned)(a >> 32),
                     (unsigned)(a >> 16 & 0xffff), (unsigned)(a & 0xfff), (unsigned)(0x8000 | (b >> 48 & 0x3fff)),
                     (unsigned long long)(b & 0xffffffffffffull));
            c->used = 1;
            g->n_changes++;
            *made = c;
            return f == NULL ? OK : (int)f->code;
        }
    return INSUFFICIENT_RESOURCES;
}

int destroy_ci(struct state *s, struct gpu *g, struct gi *i, struct ci *c)
{
    int code = obstacle(s, g);
    if (code != OK)
        return code;
    if (!s->permitted)
        return NO_PERMISSION;
    spend(s, g->profiles[i->profile].destroy_us / 10);
    if (!i->used || !c->used)
        return NOT_FOUND;
    struct fault *f = fault_of(s, OP_DESTROY_CI);
    if (f != NULL && !f->after_effect)
        return (int)f->code;
    for (int k = 0; k < MAX_PIDS; k++)
        if (c->pids[k] != 0)
            return IN_USE;
    c->used = 0;
    g->n_changes++;
    return f == NULL ? OK : (int)f->code;
}

const char *error_text(int code)
{
    switch (code) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case INVALID_ARGUMENT: return "Invalid Argument";
    case NOT_SUPPORTED: return "Not Supported";
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case INSUFFICIENT_SIZE: return "Insufficient Size";
    case DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case TIMEOUT: return "Timeout";
    case INFOROM_CORRUPTED: return "infoROM is corrupted";
    case GPU_IS_LOST: return "GPU is lost";
    case RESET_REQUIRED: return "GPU requires reset";
    case IN_USE: return "In use by another client";
    case INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    case VERSION_MISMATCH: return "API Argument Version Mismatch";
    default: return "Unknown Error";
    }
}
