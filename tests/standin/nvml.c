/* NVML's door to the stand-in: the calls that MIG tools make, with the structures and codes of nvidia-ml-py 13.615.
 *
 * Every other symbol of the library is a stub that answers "not supported" (stubs.c, generated from the module's names).
 */
#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef void *handle;
enum { KIND_GPU = 1, KIND_MIG = 2, KIND_GI = 3, KIND_CI = 4 };

static int n_inits = 0;

static handle made_handle(unsigned kind, unsigned gpu, unsigned gi, unsigned ci)
{
    return (handle)(uintptr_t)(kind << 24 | gpu << 16 | gi << 8 | ci);
}

struct target {
    struct state *s;
    struct gpu *g;
    struct gi *i;
    struct ci *c;
    unsigned kind, gpu;
};

/* What a handle stands for; the state is locked when this returns OK. */
static int found(handle h, unsigned kinds, struct target *t)
{
    unsigned value = (unsigned)(uintptr_t)h;
    memset(t, 0, sizeof *t);
    t->kind = value >> 24;
    t->gpu = value >> 16 & 0xff;
    if (n_inits == 0)
        return UNINITIALIZED;
    if ((t->s = open_state()) == NULL)
        return UNKNOWN;
    if (!(kinds & 1u << t->kind) || t->gpu >= t->s->n_gpus)
        return INVALID_ARGUMENT;
    lock_state();
    t->g = &t->s->gpus[t->gpu];
    if (t->kind != KIND_GPU && (t->i = gi_by_id(t->g, value >> 8 & 0xff)) == NULL) {
        unlock_state();
        return NOT_FOUND;
    }
    if ((t->kind == KIND_MIG || t->kind == KIND_CI) && (t->c = ci_by_id(t->i, value & 0xff)) == NULL) {
        unlock_state();
        return NOT_FOUND;
    }
    int code = read_fault(t->s, t->g);
    if (code != OK)
        unlock_state();
    return code;
}

#define FIND(h, kinds)                        \
    struct target t;                          \
    int code = found(h, kinds, &t);           \
    if (code != OK)                           \
        return code
#define ON_GPU (1u << KIND_GPU)
#define ON_DEVICE (1u << KIND_GPU | 1u << KIND_MIG)
#define ON_MIG (1u << KIND_MIG)
#define ON_GI (1u << KIND_GI)
#define ON_CI (1u << KIND_CI)

static int done(int code)
{
    unlock_state();
    return code;
}

/* --- The library and the system --- */

int nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    struct state *s = open_state();
    if (s == NULL)
        return UNKNOWN;
    if (!s->driver_loaded)
        return DRIVER_NOT_LOADED;
    n_inits++;
    return OK;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void)
{
    if (n_inits == 0)
        return UNINITIALIZED;
    n_inits--;
    return OK;
}

const char *nvmlErrorString(int code) { return error_text(code); }

static int text(const char *value, char *out, unsigned length)
{
    if (strlen(value) + 1 > length)
        return INSUFFICIENT_SIZE;
    strcpy(out, value);
    return OK;
}

int nvmlSystemGetDriverVersion(char *out, unsigned length)
{
    struct state *s = open_state();
    return n_inits == 0 ? UNINITIALIZED : text(s->driver_version, out, length);
}

int nvmlSystemGetNVMLVersion(char *out, unsigned length)
{
    return n_inits == 0 ? UNINITIALIZED : text("13.580.65", out, length);
}

int nvmlSystemGetCudaDriverVersion(int *version)
{
    *version = 13000;
    return n_inits == 0 ? UNINITIALIZED : OK;
}

int nvmlSystemGetCudaDriverVersion_v2(int *version) { return nvmlSystemGetCudaDriverVersion(version); }

/* --- GPUs --- */

int nvmlDeviceGetCount_v2(unsigned *count)
{
    struct state *s = open_state();
    if (n_inits == 0)
        return UNINITIALIZED;
    *count = s->n_gpus;
    return OK;
}

int nvmlDeviceGetCount(unsigned *count) { return nvmlDeviceGetCount_v2(count); }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, handle *out)
{
    struct state *s = open_state();
    if (n_inits == 0)
        return UNINITIALIZED;
    if (index >= s->n_gpus)
        return INVALID_ARGUMENT;
    *out = made_handle(KIND_GPU, index, 0, 0);
    return OK;
}

int nvmlDeviceGetHandleByIndex(unsigned index, handle *out) { return nvmlDeviceGetHandleByIndex_v2(index, out); }

int nvmlDeviceGetHandleByUUID(const char *uuid, handle *out)
{
    struct state *s = open_state();
    if (n_inits == 0)
        return UNINITIALIZED;
    lock_state();
    for (unsigned n = 0; n < s->n_gpus; n++) {
        struct gpu *g = &s->gpus[n];
        if (strcmp(g->uuid, uuid) == 0) {
            *out = made_handle(KIND_GPU, n, 0, 0);
            return done(OK);
        }
        for (int k = 0; k < MAX_GIS; k++)
            for (int l = 0; g->gis[k].used && l < MAX_CIS; l++)
                if (g->gis[k].cis[l].used && strcmp(g->gis[k].cis[l].uuid, uuid) == 0) {
                    *out = made_handle(KIND_MIG, n, g->gis[k].id, g->gis[k].cis[l].id);
                    return done(OK);
                }
    }
    return done(NOT_FOUND);
}

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, handle *out)
{
    struct state *s = open_state();
    if (n_inits == 0)
        return UNINITIALIZED;
    for (unsigned n = 0; n < s->n_gpus; n++)
        if (strcmp(s->gpus[n].bus_id, bus_id) == 0) {
            *out = made_handle(KIND_GPU, n, 0, 0);
            return OK;
        }
    return NOT_FOUND;
}

int nvmlDeviceGetIndex(handle h, unsigned *index)
{
    FIND(h, ON_GPU);
    *index = t.gpu;
    return done(OK);
}

int nvmlDeviceGetMinorNumber(handle h, unsigned *minor) { return nvmlDeviceGetIndex(h, minor); }

int nvmlDeviceGetName(handle h, char *out, unsigned length)
{
    FIND(h, ON_DEVICE);
    char name[160];
    if (t.kind == KIND_GPU)
        snprintf(name, sizeof name, "%s", t.g->name);
    else if (t.c->profile == t.g->profiles[t.i->profile].ci_profile)
        snprintf(name, sizeof name, "%s MIG %s", t.g->name, t.g->profiles[t.i->profile].name);
    else
        snprintf(name, sizeof name, "%s MIG %uc.%s", t.g->name, t.c->slices, t.g->profiles[t.i->profile].name);
    return done(text(name, out, length));
}

int nvmlDeviceGetUUID(handle h, char *out, unsigned length)
{
    FIND(h, ON_DEVICE);
    return done(text(t.kind == KIND_GPU ? t.g->uuid : t.c->uuid, out, length));
}

struct pci {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
};

int nvmlDeviceGetPciInfo_v3(handle h, struct pci *out)
{
    FIND(h, ON_GPU);
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "%s", t.g->bus_id);
    snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", t.gpu + 1);
    out->bus = t.gpu + 1;
    return done(OK);
}

struct memory { uint64_t total, free, used; };
struct memory_v2 { unsigned version; uint64_t total, reserved, free, used; };

static uint64_t bytes_of(const struct target *t)
{
    return (t->kind == KIND_GPU ? t->g->memory_mib : t->g->profiles[t->i->profile].memory_mib) << 20;
}

int nvmlDeviceGetMemoryInfo(handle h, struct memory *out)
{
    FIND(h, ON_DEVICE);
    *out = (struct memory){bytes_of(&t), bytes_of(&t), 0};
    return done(OK);
}

int nvmlDeviceGetMemoryInfo_v2(handle h, struct memory_v2 *out)
{
    if (out->version != 0x02000028)
        return VERSION_MISMATCH;
    FIND(h, ON_DEVICE);
    *out = (struct memory_v2){out->version, bytes_of(&t), 0, bytes_of(&t), 0};
    return done(OK);
}

int nvmlDeviceGetBAR1MemoryInfo(handle h, struct memory *out) /* nvitop cannot do without */
{
    FIND(h, ON_DEVICE);
    *out = (struct memory){bytes_of(&t), bytes_of(&t), 0};
    return done(OK);
}

int nvmlDeviceGetComputeMode(handle h, unsigned *mode)
{
    FIND(h, ON_GPU);
    *mode = t.g->compute_mode;
    return done(OK);
}

int nvmlDeviceGetCudaComputeCapability(handle h, int *major, int *minor)
{
    FIND(h, ON_GPU);
    *major = (int)t.g->compute_capability / 10;
    *minor = (int)t.g->compute_capability % 10;
    return done(t.g->compute_capability > 0 ? OK : NOT_SUPPORTED);
}

struct process { unsigned pid; uint64_t used; unsigned gi, ci; };

int nvmlDeviceGetComputeRunningProcesses_v3(handle h, unsigned *count, struct process *out)
{
    FIND(h, ON_DEVICE);
    unsigned n = 0, room = *count;
    if ((code = process_fault(t.s)) != OK)
        return done(code);
    for (int k = 0; k < MAX_GIS; k++)
        for (int l = 0; t.g->gis[k].used && l < MAX_CIS; l++) {
            const struct ci *c = &t.g->gis[k].cis[l];
            if (!c->used || (t.kind == KIND_MIG && c != t.c))
                continue;
            for (int m = 0; m < MAX_PIDS; m++)
                if (c->pids[m] != 0) {
                    if (out != NULL && n < room)
                        out[n] = (struct process){c->pids[m], 256u << 20, t.g->gis[k].id, c->id};
                    n++;
                }
        }
    *count = n;
    return done(n > room ? INSUFFICIENT_SIZE : OK);
}

int nvmlDeviceGetComputeRunningProcesses_v2(handle h, unsigned *count, struct process *out)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(h, count, out);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(handle h, unsigned *count, struct process *out)
{
    FIND(h, ON_DEVICE);
    (void)out;
    *count = 0;
    return done(OK);
}

/* --- MIG mode and MIG devices --- */

int nvmlDeviceGetMigMode(handle h, unsigned *current, unsigned *pending)
{
    FIND(h, ON_GPU);
    *current = t.g->mig_current;
    *pending = t.g->mig_pending;
    return done(OK);
}

int nvmlDeviceSetMigMode(handle h, unsigned mode, int *activation)
{
    FIND(h, ON_GPU);
    if (!t.s->permitted)
        return done(NO_PERMISSION);
    t.g->mig_pending = mode;
    *activation = OK;
    for (int k = 0; k < MAX_GIS; k++)
        if (t.g->gis[k].used)
            *activation = IN_USE;
    if (*activation == OK)
        t.g->mig_current = mode;
    return done(OK);
}

int nvmlDeviceIsMigDeviceHandle(handle h, unsigned *is)
{
    FIND(h, ON_DEVICE);
    *is = t.kind == KIND_MIG;
    return done(OK);
}

int nvmlDeviceGetMaxMigDeviceCount(handle h, unsigned *count)
{
    FIND(h, ON_GPU);
    *count = t.g->compute_slices;
    return done(OK);
}

int nvmlDeviceGetMigDeviceHandleByIndex(handle h, unsigned index, handle *out)
{
    FIND(h, ON_GPU);
    if (!t.g->mig_current)
        return done(NOT_SUPPORTED);
    if (index >= t.g->compute_slices)
        return done(INVALID_ARGUMENT);
    for (int k = 0; k < MAX_GIS; k++)
        for (int l = 0; t.g->gis[k].used && l < MAX_CIS; l++)
            if (t.g->gis[k].cis[l].used && index-- == 0) {
                *out = made_handle(KIND_MIG, t.gpu, t.g->gis[k].id, t.g->gis[k].cis[l].id);
                return done(OK);
            }
    return done(NOT_FOUND);
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle h, handle *out)
{
    FIND(h, ON_MIG);
    *out = made_handle(KIND_GPU, t.gpu, 0, 0);
    return done(OK);
}

int nvmlDeviceGetGpuInstanceId(handle h, unsigned *id)
{
    FIND(h, ON_MIG);
    *id = t.i->id;
    return done(OK);
}

int nvmlDeviceGetComputeInstanceId(handle h, unsigned *id)
{
    FIND(h, ON_MIG);
    *id = t.c->id;
    return done(OK);
}

struct attributes { unsigned sms, ces, decoders, encoders, jpegs, ofas, gi_slices, ci_slices; uint64_t memory_mib; };

int nvmlDeviceGetAttributes_v2(handle h, struct attributes *out)
{
    FIND(h, ON_MIG);
    const struct profile *p = &t.g->profiles[t.i->profile];
    *out = (struct attributes){p->sms * t.c->slices / p->compute_slices, p->copy_engines, p->decoders, p->encoders,
                               p->jpegs, p->ofas, p->compute_slices, t.c->slices, p->memory_mib};
    return done(OK);
}

/* --- GPU instances --- */

struct gi_profile_info {
    unsigned id, p2p, slices, instances, sms, ces, decoders, encoders, jpegs, ofas;
    uint64_t memory_mib;
};
struct gi_profile_info_v2 {
    unsigned version, id, p2p, slices, instances, sms, ces, decoders, encoders, jpegs, ofas;
    uint64_t memory_mib;
    char name[96];
};
_Static_assert(sizeof(struct gi_profile_info_v2) == 0x98, "nvmlGpuInstanceProfileInfo_v2");

static const struct profile *profile_by_enum(const struct gpu *g, unsigned enumerator)
{
    for (uint32_t k = 0; k < g->n_profiles; k++)
        if (g->profiles[k].enumerator == enumerator)
            return &g->profiles[k];
    return NULL;
}

static void fill_v2(const struct profile *p, struct gi_profile_info_v2 *out)
{
    unsigned version = out->version;
    memset(out, 0, sizeof *out);
    out->version = version;
    out->id = p->id;
    out->slices = p->compute_slices;
    out->instances = p->max_instances;
    out->sms = p->sms;
    out->ces = p->copy_engines;
    out->decoders = p->decoders;
    out->encoders = p->encoders;
    out->jpegs = p->jpegs;
    out->ofas = p->ofas;
    out->memory_mib = p->memory_mib;
    snprintf(out->name, sizeof out->name, "MIG %s", p->name);
}

static int profile_info(handle h, const struct profile *(*find)(const struct gpu *, unsigned), unsigned number,
                        struct gi_profile_info_v2 *out)
{
    if (out->version != 0x02000098)
        return VERSION_MISMATCH;
    FIND(h, ON_GPU);
    const struct profile *p = t.g->mig_current ? find(t.g, number) : NULL;
    if (p != NULL)
        fill_v2(p, out);
    return done(p == NULL ? NOT_SUPPORTED : OK);
}

int nvmlDeviceGetGpuInstanceProfileInfoV(handle h, unsigned enumerator, struct gi_profile_info_v2 *out)
{
    return profile_info(h, profile_by_enum, enumerator, out);
}

int nvmlDeviceGetGpuInstanceProfileInfoByIdV(handle h, unsigned id, struct gi_profile_info_v2 *out)
{
    return profile_info(h, profile_by_id, id, out);
}

int nvmlDeviceGetGpuInstanceProfileInfo(handle h, unsigned enumerator, struct gi_profile_info *out)
{
    struct gi_profile_info_v2 found_info = {.version = 0x02000098};
    int code = nvmlDeviceGetGpuInstanceProfileInfoV(h, enumerator, &found_info);
    if (code != OK)
        return code;
    *out = (struct gi_profile_info){found_info.id,       found_info.p2p,      found_info.slices, found_info.instances,
                                    found_info.sms,      found_info.ces,      found_info.decoders,
                                    found_info.encoders, found_info.jpegs,    found_info.ofas,
                                    found_info.memory_mib};
    return OK;
}

int nvmlDeviceGetGpuInstanceRemainingCapacity(handle h, unsigned id, unsigned *count)
{
    FIND(h, ON_GPU);
    const struct profile *p = profile_by_id(t.g, id);
    if (!t.g->mig_current || p == NULL)
        return done(p == NULL ? INVALID_ARGUMENT : NOT_SUPPORTED);
    *count = remaining_gis(t.g, p);
    return done(OK);
}

struct placement { unsigned start, size; };

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(handle h, unsigned id, struct placement *out, unsigned *count)
{
    FIND(h, ON_GPU);
    const struct profile *p = profile_by_id(t.g, id);
    if (!t.g->mig_current || p == NULL)
        return done(p == NULL ? INVALID_ARGUMENT : NOT_SUPPORTED);
    if (!t.s->permitted)
        return done(NO_PERMISSION);
    unsigned room = *count;
    *count = p->n_starts;
    if (out == NULL)
        return done(OK);
    for (unsigned k = 0; k < p->n_starts && k < room; k++)
        out[k] = (struct placement){p->starts[k], p->memory_slices};
    return done(room < p->n_starts ? INSUFFICIENT_SIZE : OK);
}

static int created(handle h, unsigned id, int64_t start, handle *out)
{
    FIND(h, ON_GPU);
    struct gi *i = NULL;
    code = create_gi(t.s, t.g, profile_by_id(t.g, id), start, &i);
    if (code == OK)
        *out = made_handle(KIND_GI, t.gpu, i->id, 0);
    return done(code);
}

int nvmlDeviceCreateGpuInstance(handle h, unsigned id, handle *out) { return created(h, id, -1, out); }

int nvmlDeviceCreateGpuInstanceWithPlacement(handle h, unsigned id, const struct placement *at, handle *out)
{
    return at == NULL ? INVALID_ARGUMENT : created(h, id, at->start, out);
}

int nvmlGpuInstanceDestroy(handle h)
{
    FIND(h, ON_GI);
    return done(destroy_gi(t.s, t.g, t.i));
}

int nvmlDeviceGetGpuInstances(handle h, unsigned id, handle *out, unsigned *count)
{
    FIND(h, ON_GPU);
    if (!t.g->mig_current)
        return done(NOT_SUPPORTED);
    if (profile_by_id(t.g, id) == NULL)
        return done(INVALID_ARGUMENT);
    *count = 0;
    for (int k = 0; k < MAX_GIS; k++)
        if (t.g->gis[k].used && t.g->profiles[t.g->gis[k].profile].id == id)
            out[(*count)++] = made_handle(KIND_GI, t.gpu, t.g->gis[k].id, 0);
    return done(OK);
}

int nvmlDeviceGetGpuInstanceById(handle h, unsigned id, handle *out)
{
    FIND(h, ON_GPU);
    if (!t.g->mig_current)
        return done(NOT_SUPPORTED);
    if (gi_by_id(t.g, id) == NULL)
        return done(NOT_FOUND);
    *out = made_handle(KIND_GI, t.gpu, id, 0);
    return done(OK);
}

struct gi_info { handle device; unsigned id, profile; struct placement at; };

int nvmlGpuInstanceGetInfo(handle h, struct gi_info *out)
{
    FIND(h, ON_GI);
    const struct profile *p = &t.g->profiles[t.i->profile];
    *out = (struct gi_info){made_handle(KIND_GPU, t.gpu, 0, 0), t.i->id, p->id, {t.i->start, p->memory_slices}};
    return done(OK);
}

/* --- Compute instances --- */

struct ci_profile_info { unsigned id, slices, instances, sms, ces, decoders, encoders, jpegs, ofas; };
struct ci_profile_info_v2 {
    unsigned version, id, slices, instances, sms, ces, decoders, encoders, jpegs, ofas;
    char name[96];
};
_Static_assert(sizeof(struct ci_profile_info_v2) == 0x88, "nvmlComputeInstanceProfileInfo_v2");

/* The compute-instance profile of an enumerator in this GPU instance; -1 where there is none. */
static int ci_profile_of(const struct profile *p, unsigned enumerator)
{
    uint32_t slices = ci_slices_of(enumerator);
    int whole_only = p->ci_profile == 7; /* a double-memory 1g has one compute instance, its own */
    if (slices == 0 || slices > p->compute_slices || (enumerator == 7) != whole_only)
        return -1;
    return (int)enumerator;
}

int nvmlGpuInstanceGetComputeInstanceProfileInfoV(handle h, unsigned enumerator, unsigned engines,
                                                  struct ci_profile_info_v2 *out)
{
    if (out->version != 0x02000088)
        return VERSION_MISMATCH;
    FIND(h, ON_GI);
    const struct profile *p = &t.g->profiles[t.i->profile];
    int id = engines == 0 ? ci_profile_of(p, enumerator) : -1;
    if (id < 0)
        return done(NOT_SUPPORTED);
    uint32_t slices = ci_slices_of((uint32_t)id);
    *out = (struct ci_profile_info_v2){.version = 0x02000088, .id = (unsigned)id, .slices = slices,
                                       .instances = p->compute_slices / slices,
                                       .sms = p->sms * slices / p->compute_slices};
    if ((uint32_t)id == p->ci_profile)
        snprintf(out->name, sizeof out->name, "MIG %s", p->name);
    else
        snprintf(out->name, sizeof out->name, "MIG %uc.%s", slices, p->name);
    return done(OK);
}

int nvmlGpuInstanceGetComputeInstanceProfileInfo(handle h, unsigned enumerator, unsigned engines,
                                                 struct ci_profile_info *out)
{
    struct ci_profile_info_v2 info = {.version = 0x02000088};
    int code = nvmlGpuInstanceGetComputeInstanceProfileInfoV(h, enumerator, engines, &info);
    if (code == OK)
        *out = (struct ci_profile_info){info.id, info.slices, info.instances, info.sms, 0, 0, 0, 0, 0};
    return code;
}

int nvmlGpuInstanceGetComputeInstanceRemainingCapacity(handle h, unsigned id, unsigned *count)
{
    FIND(h, ON_GI);
    uint32_t slices = ci_slices_of(id);
    if (slices == 0)
        return done(INVALID_ARGUMENT);
    *count = free_ci_slices(t.g, t.i) / slices;
    return done(OK);
}

int nvmlGpuInstanceGetComputeInstancePossiblePlacements(handle h, unsigned id, struct placement *out, unsigned *count)
{
    FIND(h, ON_GI);
    const struct profile *p = &t.g->profiles[t.i->profile];
    uint32_t slices = ci_slices_of(id);
    if (slices == 0 || slices > p->compute_slices)
        return done(INVALID_ARGUMENT);
    uint32_t span = ci_span_of(p, id), n = p->ci_span - span + 1;
    for (uint32_t k = 0; out != NULL && k < n && k < *count; k++)
        out[k] = (struct placement){k, span};
    *count = n;
    return done(OK);
}

static int ci_created(handle h, unsigned id, int64_t start, handle *out)
{
    FIND(h, ON_GI);
    struct ci *c = NULL;
    code = create_ci(t.s, t.g, t.i, id, start, &c);
    if (code == OK)
        *out = made_handle(KIND_CI, t.gpu, t.i->id, c->id);
    return done(code);
}

int nvmlGpuInstanceCreateComputeInstance(handle h, unsigned id, handle *out) { return ci_created(h, id, -1, out); }

int nvmlGpuInstanceCreateComputeInstanceWithPlacement(handle h, unsigned id, const struct placement *at, handle *out)
{
    return at == NULL ? INVALID_ARGUMENT : ci_created(h, id, at->start, out);
}

int nvmlComputeInstanceDestroy(handle h)
{
    FIND(h, ON_CI);
    return done(destroy_ci(t.s, t.g, t.i, t.c));
}

int nvmlGpuInstanceGetComputeInstances(handle h, unsigned id, handle *out, unsigned *count)
{
    FIND(h, ON_GI);
    *count = 0;
    for (int k = 0; k < MAX_CIS; k++)
        if (t.i->cis[k].used && t.i->cis[k].profile == id)
            out[(*count)++] = made_handle(KIND_CI, t.gpu, t.i->id, t.i->cis[k].id);
    return done(OK);
}

int nvmlGpuInstanceGetComputeInstanceById(handle h, unsigned id, handle *out)
{
    FIND(h, ON_GI);
    if (ci_by_id(t.i, id) == NULL)
        return done(NOT_FOUND);
    *out = made_handle(KIND_CI, t.gpu, t.i->id, id);
    return done(OK);
}

struct ci_info { handle device, gpu_instance; unsigned id, profile; struct placement at; };

int nvmlComputeInstanceGetInfo_v2(handle h, struct ci_info *out)
{
    FIND(h, ON_CI);
    *out = (struct ci_info){made_handle(KIND_GPU, t.gpu, 0, 0), made_handle(KIND_GI, t.gpu, t.i->id, 0), t.c->id,
                            t.c->profile, {t.c->start, t.c->span}};
    return done(OK);
}

/* --- Events: the change of the MIG configuration --- */

struct event { handle device; uint64_t type, data; unsigned gi, ci; };
struct event_set { handle device[MAX_GPUS]; uint64_t seen[MAX_GPUS]; unsigned n; };
#define MIG_CHANGED 0x100ull

int nvmlEventSetCreate(struct event_set **out)
{
    *out = calloc(1, sizeof **out);
    return *out == NULL ? UNKNOWN : OK;
}

int nvmlEventSetFree(struct event_set *set)
{
    free(set);
    return OK;
}

int nvmlDeviceGetSupportedEventTypes(handle h, uint64_t *types)
{
    FIND(h, ON_GPU);
    *types = MIG_CHANGED;
    return done(OK);
}

int nvmlDeviceRegisterEvents(handle h, uint64_t types, struct event_set *set)
{
    if (types & ~MIG_CHANGED)
        return NOT_SUPPORTED;
    FIND(h, ON_GPU);
    if (set->n == MAX_GPUS)
        return done(INSUFFICIENT_RESOURCES);
    set->device[set->n] = h;
    set->seen[set->n++] = t.g->n_changes;
    return done(OK);
}

int nvmlEventSetWait_v2(struct event_set *set, struct event *out, unsigned timeout_ms)
{
    for (unsigned waited_ms = 0;; waited_ms++) {
        for (unsigned k = 0; k < set->n; k++) {
            FIND(set->device[k], ON_GPU);
            uint64_t now = t.g->n_changes;
            unlock_state();
            if (now != set->seen[k]) {
                set->seen[k] = now;
                *out = (struct event){set->device[k], MIG_CHANGED, 0, 0xffffffffu, 0xffffffffu};
                return OK;
            }
        }
        if (waited_ms >= timeout_ms)
            return TIMEOUT;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}
