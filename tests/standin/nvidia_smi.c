/* The stand-in's nvidia-smi: the mig sub-command's changes, with the driver's texts and partial success, and -lgi.
 *
 * What each line looks like, and where that was seen, stands in README.md.
 */
#include "state.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct state *s;
static long only_gpu = -1, only_gi = -1, only_ci = -1;

static int refuse(const char *what)
{
    fprintf(stderr, "%s\n", what);
    return 2;
}

/* "MIG 3g.20gb (ID  9)" as tools print it */
static void print_profile(const char *prefix, const char *name, unsigned id)
{
    printf("%sMIG %s (ID %2u)\n", prefix, name, id);
}

static void ci_name(const struct profile *p, unsigned ci_profile, char *out, size_t length)
{
    if (ci_profile == p->ci_profile)
        snprintf(out, length, "%s", p->name);
    else
        snprintf(out, length, "%uc.%s", ci_slices_of(ci_profile), p->name);
}

static int query_driver(const char *fields)
{
    if (strcmp(fields, "driver_version") != 0) {
        fprintf(stderr, "Field \"%s\" is not a valid field to query.\n", fields);
        return 2;
    }
    for (unsigned n = 0; n < s->n_gpus; n++)
        if (only_gpu < 0 || n == (unsigned)only_gpu)
            printf("%s\n", s->driver_version);
    return OK;
}

static int list_instances(void)
{
    int n_listed = 0;
    for (unsigned n = 0; n < s->n_gpus; n++) {
        const struct gpu *g = &s->gpus[n];
        if ((only_gpu >= 0 && n != (unsigned)only_gpu) || !g->mig_current)
            continue;
        for (int k = 0; k < MAX_GIS; k++) {
            const struct gi *i = &g->gis[k];
            if (!i->used)
                continue;
            if (n_listed++ == 0)
                printf("+------------------------------------------------------------+\n"
                       "| GPU instances:                                             |\n"
                       "| GPU   Name          Profile  Instance   Placement          |\n"
                       "|                       ID       ID       Start:Size         |\n"
                       "|============================================================|\n");
            const struct profile *p = &g->profiles[i->profile];
            printf("| %3u  MIG %-13s %2u       %2u         %2u:%-2u            |\n", n, p->name, p->id, i->id, i->start,
                   p->memory_slices);
        }
    }
    if (n_listed == 0) {
        printf("No GPU instances found: Not Found\n");
        return NOT_FOUND;
    }
    printf("+------------------------------------------------------------+\n");
    return OK;
}

/* --- Changes --- */

static const struct profile *named_profile(const struct gpu *g, const char *name)
{
    char *end;
    unsigned long id = strtoul(name, &end, 10);
    if (*name != '\0' && *end == '\0')
        return profile_by_id(g, (uint32_t)id);
    if (strncmp(name, "MIG ", 4) == 0)
        name += 4;
    for (uint32_t k = 0; k < g->n_profiles; k++)
        if (strcmp(g->profiles[k].name, name) == 0)
            return &g->profiles[k];
    return NULL;
}

static int make_ci(unsigned n, struct gpu *g, struct gi *i, uint32_t ci_profile)
{
    struct ci *c = NULL;
    char name[48];
    uint32_t gi_id = i->id;
    int code = create_ci(s, g, i, ci_profile, -1, &c);
    if (code != OK) {
        printf("Unable to create a compute instance on GPU %2u GPU instance ID %2u using profile %u: %s\n", n, gi_id,
               ci_profile, error_text(code));
        printf("Failed to create compute instances: %s\n", error_text(code));
        return code;
    }
    ci_name(&g->profiles[i->profile], ci_profile, name, sizeof name);
    printf("Successfully created compute instance ID %2u on GPU %2u GPU instance ID %2u using profile ", c->id, n,
           gi_id);
    print_profile("", name, ci_profile);
    return OK;
}

static int create(char *list, int with_ci)
{
    unsigned n = only_gpu < 0 ? 0 : (unsigned)only_gpu;
    struct gpu *g = &s->gpus[n];
    char *one;
    if (!g->mig_current) {
        printf("No MIG-enabled devices found.\n");
        return NOT_FOUND;
    }
    while ((one = strsep(&list, ",")) != NULL) {
        char *colon = strchr(one, ':');
        long start = -1;
        struct gi *i = NULL;
        if (colon != NULL) {
            *colon = '\0';
            start = strtol(colon + 1, NULL, 10);
        }
        const struct profile *p = named_profile(g, one);
        int code = create_gi(s, g, p, start, &i);
        if (code != OK) {
            printf("Unable to create a GPU instance on GPU %2u using profile %s: %s\n", n, one, error_text(code));
            printf("Failed to create GPU instances: %s\n", error_text(code));
            return code;
        }
        printf("Successfully created GPU instance ID %2u on GPU %2u using profile ", i->id, n);
        print_profile("", p->name, p->id);
        if (with_ci && (code = make_ci(n, g, i, p->ci_profile)) != OK)
            return code;
    }
    return OK;
}

static int create_compute(char *list)
{
    unsigned n = only_gpu < 0 ? 0 : (unsigned)only_gpu;
    struct gpu *g = &s->gpus[n];
    for (int k = 0; k < MAX_GIS; k++) {
        struct gi *i = &g->gis[k];
        if (!i->used || (only_gi >= 0 && i->id != (unsigned)only_gi))
            continue;
        char copy[128], *at = copy, *one;
        snprintf(copy, sizeof copy, "%s", list == NULL ? "" : list);
        while ((one = strsep(&at, ",")) != NULL) {
            uint32_t wanted = *one == '\0' ? g->profiles[i->profile].ci_profile : (uint32_t)strtoul(one, NULL, 10);
            int code = make_ci(n, g, i, wanted);
            if (code != OK)
                return code;
        }
    }
    return OK;
}

static int destroy_compute(void)
{
    int count = 0, worst = OK;
    for (unsigned n = 0; n < s->n_gpus; n++)
        for (int k = 0; k < MAX_GIS; k++) {
            struct gi *i = &s->gpus[n].gis[k];
            if ((only_gpu >= 0 && n != (unsigned)only_gpu) || !i->used || (only_gi >= 0 && i->id != (unsigned)only_gi))
                continue;
            for (int l = 0; l < MAX_CIS; l++) {
                struct ci *c = &i->cis[l];
                if (!c->used || (only_ci >= 0 && c->id != (unsigned)only_ci))
                    continue;
                count++;
                uint32_t gi_id = i->id, id = c->id;
                int code = destroy_ci(s, &s->gpus[n], i, c);
                if (code == OK)
                    printf("Successfully destroyed compute instance ID %2u from GPU %2u GPU instance ID %2u\n", id, n,
                           gi_id);
                else {
                    printf("Unable to destroy compute instance ID %2u from GPU %2u GPU instance ID %2u: %s\n", id, n,
                           gi_id, error_text(code));
                    worst = code;
                }
            }
        }
    if (count == 0) {
        printf("No compute instances found: Not Found\n");
        return NOT_FOUND;
    }
    if (worst != OK)
        printf("Failed to destroy compute instances: %s\n", error_text(worst));
    return worst;
}

static int destroy(void)
{
    int count = 0, worst = OK;
    for (unsigned n = 0; n < s->n_gpus; n++)
        for (int k = 0; k < MAX_GIS; k++) {
            struct gi *i = &s->gpus[n].gis[k];
            if ((only_gpu >= 0 && n != (unsigned)only_gpu) || !i->used || (only_gi >= 0 && i->id != (unsigned)only_gi))
                continue;
            count++;
            uint32_t id = i->id;
            int code = destroy_gi(s, &s->gpus[n], i);
            if (code == OK)
                printf("Successfully destroyed GPU instance ID %2u from GPU %2u\n", id, n);
            else {
                printf("Unable to destroy GPU instance ID %2u from GPU %2u: %s\n", id, n, error_text(code));
                worst = code;
            }
        }
    if (count == 0) {
        printf("No GPU instances found: Not Found\n");
        return NOT_FOUND;
    }
    if (worst != OK)
        printf("Failed to destroy GPU instances: %s\n", error_text(worst));
    return worst;
}

/* --- The command line --- */

static int has_value(int argc, char **argv, int k) { return k + 1 < argc && argv[k + 1][0] != '-'; }

/* A corrupted infoROM is warned of after all else; it does not hide another failure. */
static int warned_of_inforom(int code)
{
    for (unsigned n = 0; n < s->n_gpus; n++)
        if (s->gpus[n].inforom_corrupted && (only_gpu < 0 || n == (unsigned)only_gpu)) {
            printf("WARNING: infoROM is corrupted at gpu %s\n", s->gpus[n].bus_id);
            code = code == OK ? INFOROM_CORRUPTED : code;
        }
    return code;
}

static int command(int argc, char **argv)
{
    char *make = NULL, *make_ci_of = NULL;
    const char *verb = NULL, *query = NULL;
    int with_ci = 0;
    if ((s = open_state()) == NULL || !s->driver_loaded) {
        printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest "
               "NVIDIA driver is installed and running.\n\n");
        return DRIVER_NOT_LOADED;
    }
    for (int k = 1; k < argc; k++) {
        if (strcmp(argv[k], "mig") == 0)
            continue;
        if (strncmp(argv[k], "--query-gpu=", 12) == 0)
            query = argv[k] + 12;
        else if (strncmp(argv[k], "--format=", 9) == 0)
            continue;
        else if (strcmp(argv[k], "-i") == 0 && has_value(argc, argv, k))
            only_gpu = strtol(argv[++k], NULL, 10);
        else if (strcmp(argv[k], "-gi") == 0 && has_value(argc, argv, k))
            only_gi = strtol(argv[++k], NULL, 10);
        else if (strcmp(argv[k], "-ci") == 0 && has_value(argc, argv, k))
            only_ci = strtol(argv[++k], NULL, 10);
        else if (strcmp(argv[k], "-C") == 0)
            with_ci = 1;
        else if (strcmp(argv[k], "-cgi") == 0 && has_value(argc, argv, k))
            verb = "-cgi", make = argv[++k];
        else if (strcmp(argv[k], "-cci") == 0) {
            verb = "-cci";
            make_ci_of = has_value(argc, argv, k) ? argv[++k] : NULL;
        } else if (argv[k][0] == '-')
            verb = argv[k];
        else
            return refuse("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.");
    }
    if (only_gpu >= (long)s->n_gpus)
        return refuse("No devices were found");
    int code;
    lock_state();
    if (query != NULL)
        code = query_driver(query);
    else if (verb == NULL)
        code = refuse("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.");
    else if (strcmp(verb, "-lgi") == 0)
        code = list_instances();
    else if (strcmp(verb, "-cgi") == 0)
        code = create(make, with_ci);
    else if (strcmp(verb, "-cci") == 0)
        code = create_compute(make_ci_of);
    else if (strcmp(verb, "-dci") == 0)
        code = destroy_compute();
    else if (strcmp(verb, "-dgi") == 0)
        code = destroy();
    else
        code = refuse("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.");
    code = warned_of_inforom(code);
    unlock_state();
    return code;
}

int main(int argc, char **argv) { return command(argc, argv); }

/* The command inside the caller's process, for tests that call it some ten thousand times; what it says goes into text. */
int nvidia_smi(int argc, char **argv, char *text, size_t size)
{
    FILE *out = stdout, *err = stderr, *memory = fmemopen(text, size, "w");
    if (memory == NULL)
        return -1;
    only_gpu = only_gi = only_ci = -1;
    stdout = stderr = memory; /* glibc's are variables */
    int code = command(argc, argv);
    stdout = out;
    stderr = err;
    fclose(memory);
    return code;
}
