/* The stand-in's state: one fixed-layout file, mapped by every process that takes part and locked with flock.
 *
 * Its Python mirror is standin.py; a test holds the two to the same size. Times are microseconds of the stand-in's own
 * clock, which every driver call moves on. What the driver says and when stands in README.md, with its sources.
 */
#ifndef MIGRATOR_STANDIN_STATE_H
#define MIGRATOR_STANDIN_STATE_H

#include <stdint.h>

#define STATE_MAGIC 0x4d494753u
#define STATE_VERSION 1u

enum { MAX_GPUS = 4, MAX_PROFILES = 20, MAX_STARTS = 16, MAX_GIS = 16, MAX_CIS = 8, MAX_PIDS = 8, MAX_FAULTS = 32 };

/* NVML's return codes (nvidia-ml-py 13.615, NVML_ERROR_*). */
enum {
    OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, INFOROM_CORRUPTED = 14, GPU_IS_LOST = 15, RESET_REQUIRED = 16, IN_USE = 19,
    INSUFFICIENT_RESOURCES = 23, VERSION_MISMATCH = 25, UNKNOWN = 999
};

/* What a fault can hit. */
enum { OP_CREATE_GI = 0, OP_DESTROY_GI = 1, OP_CREATE_CI = 2, OP_DESTROY_CI = 3, OP_READ = 4, OP_PROCESSES = 5 };

struct profile {
    uint32_t id, enumerator, compute_slices, memory_slices, max_instances, sms, n_starts, ci_profile, ci_span;
    uint32_t starts[MAX_STARTS];
    uint32_t copy_engines, decoders, encoders, jpegs, ofas, create_us, destroy_us;
    uint64_t memory_mib;
    char name[32]; /* 3g.20gb, without "MIG " */
};

struct ci {
    uint32_t used, id, slices, start, span, profile;
    uint32_t pids[MAX_PIDS];
    char uuid[48];
};

struct gi {
    uint32_t used, id, profile, start; /* profile is an index into the GPU's profiles */
    uint32_t stuck; /* this many more destructions are refused as in use, though nobody is there */
    struct ci cis[MAX_CIS];
};

struct gpu {
    char name[96], uuid[48], bus_id[32];
    uint32_t compute_slices, memory_slices, n_profiles, mig_current, mig_pending, lost;
    uint32_t compute_mode; /* 0: Default, 2: Prohibited, 3: Exclusive_Process, as NVML has them */
    uint32_t compute_capability; /* 80 is 8.0; 0 is a driver that does not know the field */
    uint32_t inforom_corrupted; /* nvidia-smi says so after whatever it has done, and ends with 14 */
    uint64_t memory_mib;
    struct profile profiles[MAX_PROFILES];
    struct gi gis[MAX_GIS];
    uint64_t n_changes; /* of the MIG configuration: what the event of that name counts */
};

/* A call of this kind fails with this code: `count` times from now, or with a chance of per_mille / 1000. */
struct fault {
    uint32_t op, code, count, per_mille, after_effect; /* after_effect: what was asked is done all the same */
};

struct state {
    uint32_t magic, version, size, n_gpus, permitted, driver_loaded, n_faults;
    char driver_version[32];
    uint64_t clock_us, random, n_calls;
    uint32_t sleep_per_mille; /* of a call's time that is really slept; 0 in tests */
    uint32_t n_boots;
    struct fault faults[MAX_FAULTS];
    struct gpu gpus[MAX_GPUS];
};

/* driver.c: the rules. Everything but open_state expects the state to be locked. */
struct state *open_state(void); /* maps $MIGRATOR_STANDIN; NULL if there is none */
void lock_state(void);
void unlock_state(void);
int create_gi(struct state *s, struct gpu *g, const struct profile *p, int64_t start, struct gi **made);
int destroy_gi(struct state *s, struct gpu *g, struct gi *i);
int create_ci(struct state *s, struct gpu *g, struct gi *i, uint32_t ci_profile, int64_t start, struct ci **made);
int destroy_ci(struct state *s, struct gpu *g, struct gi *i, struct ci *c);
int read_fault(struct state *s, struct gpu *g);
int process_fault(struct state *s); /* of the question for processes alone */
const struct profile *profile_by_id(const struct gpu *g, uint32_t id);
struct gi *gi_by_id(struct gpu *g, uint32_t id);
struct ci *ci_by_id(struct gi *i, uint32_t id);
uint32_t remaining_gis(const struct gpu *g, const struct profile *p);
uint32_t free_ci_slices(const struct gpu *g, const struct gi *i);
uint32_t ci_slices_of(uint32_t ci_profile); /* 0 where there is no such profile */
uint32_t ci_span_of(const struct profile *p, uint32_t ci_profile);
const char *error_text(int code);

#endif
