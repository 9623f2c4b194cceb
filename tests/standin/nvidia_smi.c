/* The stand-in's nvidia-smi: -L, --query-gpu, and the mig sub-command, with the driver's texts and partial success.
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

/* --- Lists --- */

static int n_listed = 0;

static int each_gpu(int (*call)(unsigned n, struct gpu *g))
{
    int worst = 0, n_mig = 0;
    for (unsigned n = 0; n < s->n_gpus; n++) {
        if ((only_gpu >= 0 && n != (unsigned)only_gpu) || !s->gpus[n].mig_current)
            continue;
        n_mig++;
        int code = read_fault(s, &s->gpus[n]);
        if (code != OK) {
            printf("Unable to query GPU %2u: %s\n", n, error_text(code));
            return code;
        }
        code = call(n, &s->gpus[n]);
        worst = worst == 0 ? code : worst;
    }
    if (n_mig == 0) {
        printf("No MIG-enabled devices found.\n");
        return NOT_FOUND;
    }
    return worst;
}

static void border(int width)
{
    putchar('+');
    while (width-- > 0)
        putchar('-');
    printf("+\n");
}

static int list_profiles(unsigned n, struct gpu *g)
{
    for (uint32_t k = 0; k < g->n_profiles; k++) {
        const struct profile *p = &g->profiles[k];
        printf("|   %u  MIG %-14s  %2u     %u/%u      %7.2f      No    %3u    %2u    %2u   |\n", n, p->name, p->id,
               remaining_gis(g, p), p->max_instances, (double)p->memory_mib / 1024, p->sms, p->decoders, p->encoders);
        printf("|                                                             %2u    %2u    %2u   |\n", p->copy_engines,
               p->jpegs, p->ofas);
    }
    return OK;
}

static int print_profiles(void)
{
    border(77);
    printf("| GPU instance profiles:                                                      |\n");
    printf("| GPU   Name             ID    Instances   Memory     P2P    SM    DEC   ENC  |\n");
    printf("|                              Free/Total   GiB              CE    JPEG  OFA  |\n");
    printf("|=============================================================================|\n");
    int code = each_gpu(list_profiles);
    border(77);
    return code;
}

static int list_placements(unsigned n, struct gpu *g)
{
    if (!s->permitted) {
        printf("Failed to display GPU instance profile placements: %s\n", error_text(NO_PERMISSION));
        return NO_PERMISSION;
    }
    for (uint32_t k = 0; k < g->n_profiles; k++) {
        const struct profile *p = &g->profiles[k];
        printf("GPU %2u Profile ID %2u Placement%s: {", n, p->id, p->n_starts > 1 ? "s" : " ");
        for (uint32_t j = 0; j < p->n_starts; j++)
            printf("%s%u", j ? "," : "", p->starts[j]);
        printf("}:%u\n", p->memory_slices);
    }
    return OK;
}

static int list_gis(unsigned n, struct gpu *g)
{
    const char *wide = s->old_lists ? "" : "        "; /* newer drivers print a wider table */
    for (int k = 0; k < MAX_GIS; k++)
        if (g->gis[k].used) {
            const struct gi *i = &g->gis[k];
            const struct profile *p = &g->profiles[i->profile];
            if (n_listed++ == 0) {
                border(s->old_lists ? 52 : 60);
                printf("| GPU instances:                                     %s|\n", wide);
                printf("| GPU   Name          Profile  Instance   Placement  %s|\n", wide);
                printf("|                       ID       ID       Start:Size %s|\n", wide);
                printf("|====================================================%s|\n", s->old_lists ? "" : "========");
            }
            printf("| %3u  MIG %-13s %2u       %2u         %2u:%-2u    %s|\n", n, p->name, p->id, i->id, i->start,
                   p->memory_slices, wide);
        }
    return OK;
}

static int print_gis(void)
{
    int code = each_gpu(list_gis);
    if (code == OK && n_listed == 0) {
        printf("No GPU instances found: Not Found\n");
        return NOT_FOUND;
    }
    if (code == OK)
        border(s->old_lists ? 52 : 60);
    return code;
}

static int list_cis(unsigned n, struct gpu *g)
{
    if (!s->permitted) {
        printf("Failed to display compute instances: %s\n", error_text(NO_PERMISSION));
        return NO_PERMISSION;
    }
    for (int k = 0; k < MAX_GIS; k++) {
        const struct gi *i = &g->gis[k];
        if (!i->used || (only_gi >= 0 && i->id != (unsigned)only_gi))
            continue;
        for (int l = 0; l < MAX_CIS; l++)
            if (i->cis[l].used) {
                char name[48], at[24] = "";
                ci_name(&g->profiles[i->profile], i->cis[l].profile, name, sizeof name);
                if (n_listed++ == 0) {
                    border(s->old_lists ? 54 : 68);
                    printf("| Compute instances:                                   %s|\n", s->old_lists ? "" : "              ");
                    printf("| GPU     GPU       Name             Profile   Instance%s|\n", s->old_lists ? "" : "   Placement  ");
                    printf("|       Instance                       ID        ID    %s|\n", s->old_lists ? "" : "   Start:Size ");
                    printf("|         ID                                           %s|\n", s->old_lists ? "" : "              ");
                }
                if (!s->old_lists) /* the column came with newer drivers */
                    snprintf(at, sizeof at, "      %2u:%-2u   ", i->cis[l].start, i->cis[l].span);
                printf("| %3u     %2u       MIG %-14s  %2u        %2u    %s|\n", n, i->id, name, i->cis[l].profile,
                       i->cis[l].id, at);
            }
    }
    return OK;
}

static int print_cis(void)
{
    int code = each_gpu(list_cis);
    if (code == OK && n_listed == 0) {
        printf("No compute instances found: Not Found\n");
        return NOT_FOUND;
    }
    if (code == OK)
        border(s->old_lists ? 54 : 68);
    return code;
}

static int list_devices(void)
{
    for (unsigned n = 0; n < s->n_gpus; n++) {
        struct gpu *g = &s->gpus[n];
        unsigned number = 0;
        printf("GPU %u: %s (UUID: %s)\n", n, g->name, g->uuid);
        for (int k = 0; k < MAX_GIS; k++)
            for (int l = 0; g->gis[k].used && l < MAX_CIS; l++)
                if (g->gis[k].cis[l].used) {
                    char name[48];
                    ci_name(&g->profiles[g->gis[k].profile], g->gis[k].cis[l].profile, name, sizeof name);
                    if (s->old_lists)
                        printf("  MIG %s Device %u: (UUID: %s)\n", name, number++, g->gis[k].cis[l].uuid);
                    else
                        printf("  MIG %-11s Device %2u: (UUID: %s)\n", name, number++, g->gis[k].cis[l].uuid);
                }
    }
    return OK;
}

static int query_gpus(const char *fields)
{
    for (unsigned n = 0; n < s->n_gpus; n++) {
        const struct gpu *g = &s->gpus[n];
        char copy[256], *at = copy, *field;
        if (only_gpu >= 0 && n != (unsigned)only_gpu)
            continue;
        if (g->lost) {
            printf("Unable to determine the device handle for GPU%u: %s: %s.  Reboot the system to recover this GPU\n", n,
                   g->bus_id, error_text(GPU_IS_LOST));
            return GPU_IS_LOST;
        }
        snprintf(copy, sizeof copy, "%s", fields);
        for (const char *comma = ""; (field = strsep(&at, ",")) != NULL; comma = ", ") {
            printf("%s", comma);
            if (strcmp(field, "index") == 0)
                printf("%u", n);
            else if (strcmp(field, "name") == 0)
                printf("%s", g->name);
            else if (strcmp(field, "uuid") == 0)
                printf("%s", g->uuid);
            else if (strcmp(field, "pci.bus_id") == 0)
                printf("%s", g->bus_id);
            else if (strcmp(field, "driver_version") == 0)
                printf("%s", s->driver_version);
            else if (strcmp(field, "memory.total") == 0)
                printf("%llu MiB", (unsigned long long)g->memory_mib);
            else if (strcmp(field, "compute_mode") == 0)
                printf("%s", g->compute_mode == 0 ? "Default" : g->compute_mode == 2 ? "Prohibited" : "Exclusive_Process");
            else if (strcmp(field, "compute_cap") == 0 && g->compute_capability > 0)
                printf("%u.%u", g->compute_capability / 10, g->compute_capability % 10);
            else if (strcmp(field, "mig.mode.current") == 0)
                printf("%s", g->mig_current ? "Enabled" : "Disabled");
            else if (strcmp(field, "mig.mode.pending") == 0)
                printf("%s", g->mig_pending ? "Enabled" : "Disabled");
            else {
                printf("\n");
                fprintf(stderr, "Field \"%s\" is not a valid field to query.\n", field);
                return 2;
            }
        }
        printf("\n");
    }
    return OK;
}

/* The part of -q -x that tells which MIG device is in which instance, and which processes are there. */
static int query_xml(void)
{
    printf("<?xml version=\"1.0\" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM \"nvsmi_device_v12.dtd\">\n<nvidia_smi_log>\n");
    printf("\t<driver_version>%s</driver_version>\n\t<attached_gpus>%u</attached_gpus>\n", s->driver_version, s->n_gpus);
    for (unsigned n = 0; n < s->n_gpus; n++) {
        const struct gpu *g = &s->gpus[n];
        unsigned number = 0;
        if (only_gpu >= 0 && n != (unsigned)only_gpu)
            continue;
        printf("\t<gpu id=\"%s\">\n\t\t<product_name>%s</product_name>\n\t\t<uuid>%s</uuid>\n", g->bus_id, g->name,
               g->uuid);
        printf("\t\t<mig_mode>\n\t\t\t<current_mig>%s</current_mig>\n\t\t\t<pending_mig>%s</pending_mig>\n"
               "\t\t</mig_mode>\n\t\t<mig_devices>\n",
               g->mig_current ? "Enabled" : "Disabled", g->mig_pending ? "Enabled" : "Disabled");
        for (int k = 0; k < MAX_GIS; k++)
            for (int l = 0; g->gis[k].used && l < MAX_CIS; l++)
                if (g->gis[k].cis[l].used)
                    printf("\t\t\t<mig_device>\n\t\t\t\t<index>%u</index>\n\t\t\t\t<gpu_instance_id>%u"
                           "</gpu_instance_id>\n\t\t\t\t<compute_instance_id>%u</compute_instance_id>\n"
                           "\t\t\t</mig_device>\n",
                           number++, g->gis[k].id, g->gis[k].cis[l].id);
        printf("\t\t</mig_devices>\n\t\t<processes>\n");
        for (int k = 0; k < MAX_GIS; k++)
            for (int l = 0; g->gis[k].used && l < MAX_CIS; l++)
                for (int m = 0; g->gis[k].cis[l].used && m < MAX_PIDS; m++)
                    if (g->gis[k].cis[l].pids[m] != 0)
                        printf("\t\t\t<process_info>\n\t\t\t\t<gpu_instance_id>%u</gpu_instance_id>\n\t\t\t\t"
                               "<compute_instance_id>%u</compute_instance_id>\n\t\t\t\t<pid>%u</pid>\n\t\t\t\t"
                               "<type>C</type>\n\t\t\t</process_info>\n",
                               g->gis[k].id, g->gis[k].cis[l].id, g->gis[k].cis[l].pids[m]);
        printf("\t\t</processes>\n\t</gpu>\n");
    }
    printf("</nvidia_smi_log>\n");
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
    if (!g->mig_current)
        return print_gis();
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
        if (strcmp(argv[k], "-x") == 0)
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
        code = query_gpus(query);
    else if (verb == NULL)
        code = refuse("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.");
    else if (strcmp(verb, "-q") == 0)
        code = query_xml();
    else if (strcmp(verb, "-L") == 0)
        code = list_devices();
    else if (strcmp(verb, "-lgip") == 0)
        code = print_profiles();
    else if (strcmp(verb, "-lgipp") == 0)
        code = each_gpu(list_placements);
    else if (strcmp(verb, "-lgi") == 0)
        code = print_gis();
    else if (strcmp(verb, "-lci") == 0)
        code = print_cis();
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
    n_listed = 0;
    stdout = stderr = memory; /* glibc's are variables */
    int code = command(argc, argv);
    stdout = out;
    stderr = err;
    fclose(memory);
    return code;
}
