/* Memory: large blocks that come back are kept by size, because results of a model have the same
 * sizes each time and fresh pages cost a fault each.
 *
 * Threads: worker i runs part i. A worker that has nothing to do spins for a bounded time, then
 * sleeps; the caller wakes sleepers only if there are any, and starts on its own part at once.
 * One parallel run at a time: a second activation that comes meanwhile runs all of its parts
 * itself, which gives the same result because parts, not threads, divide the work. */
#define _GNU_SOURCE
#include "posix.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define KEPT 64
#define KEPT_BYTES ((size_t)512 << 20)
#define KEEP_FROM ((size_t)32 << 10)
#define HUGE_PAGE ((size_t)2 << 20)
#define SPIN_NS 30000
#define MAX_WORKERS 255

typedef struct kept {
    void *memory;
    size_t bytes, align;
    uint64_t age;
} kept_t;

typedef struct worker {
    struct inlay_posix *pool;
    pthread_t thread;
    int64_t index;
} worker_t;

struct inlay_posix {
    pthread_mutex_t memory_lock;
    kept_t kept[KEPT];
    size_t kept_bytes;
    uint64_t age;

    int64_t workers, started;
    pid_t pid;
    worker_t *worker;
    atomic_flag busy;
    atomic_uint generation; /* of work; odd or even does not matter, change does */
    atomic_int parked, stop;
    atomic_llong remaining; /* workers that have not finished this generation */
    pthread_mutex_t park_lock;
    pthread_cond_t park;
    inlay_part_t part;
    void *argument;
    int64_t parts;
};

inlay_posix_t *inlay_posix_open(int threads)
{
    inlay_posix_t *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->workers = threads > 1 ? threads - 1 : 0;
    if (p->workers > MAX_WORKERS) p->workers = MAX_WORKERS;
    p->worker = calloc((size_t)p->workers + 1, sizeof *p->worker);
    if (!p->worker) {
        free(p);
        return NULL;
    }
    pthread_mutex_init(&p->memory_lock, NULL);
    pthread_mutex_init(&p->park_lock, NULL);
    pthread_cond_init(&p->park, NULL);
    atomic_flag_clear(&p->busy);
    p->pid = getpid();
    return p;
}

static void stop_workers(inlay_posix_t *p)
{
    int64_t i;
    if (!p->started || getpid() != p->pid) return; /* a forked child has no workers */
    atomic_store(&p->stop, 1);
    atomic_fetch_add(&p->generation, 1);
    pthread_mutex_lock(&p->park_lock);
    pthread_cond_broadcast(&p->park);
    pthread_mutex_unlock(&p->park_lock);
    for (i = 0; i < p->started; i++) pthread_join(p->worker[i].thread, NULL);
}

void inlay_posix_close(inlay_posix_t *p)
{
    int i;
    if (!p) return;
    stop_workers(p);
    for (i = 0; i < KEPT; i++) free(p->kept[i].memory);
    pthread_cond_destroy(&p->park);
    pthread_mutex_destroy(&p->park_lock);
    pthread_mutex_destroy(&p->memory_lock);
    free(p->worker);
    free(p);
}

/* ---------------------------------------------------------------------------------- memory */

static void *take_kept(inlay_posix_t *p, size_t bytes, size_t align)
{
    void *memory = NULL;
    int i;
    pthread_mutex_lock(&p->memory_lock);
    for (i = 0; i < KEPT && !memory; i++) {
        if (p->kept[i].bytes != bytes || p->kept[i].align != align || !p->kept[i].memory) continue;
        memory = p->kept[i].memory;
        p->kept[i].memory = NULL;
        p->kept_bytes -= bytes;
    }
    pthread_mutex_unlock(&p->memory_lock);
    return memory;
}

void *inlay_posix_allocate(void *posix, size_t bytes, size_t align)
{
    inlay_posix_t *p = posix;
    void *memory = NULL;
    int is_huge = bytes >= 2 * HUGE_PAGE;
    if (bytes >= KEEP_FROM) memory = take_kept(p, bytes, align);
    if (memory) return memory;
    if (posix_memalign(&memory, is_huge && align < HUGE_PAGE ? HUGE_PAGE : align, bytes) != 0)
        return NULL;
#ifdef MADV_HUGEPAGE
    if (is_huge) madvise(memory, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
    return memory;
}

void inlay_posix_release(void *posix, void *memory, size_t bytes, size_t align)
{
    inlay_posix_t *p = posix;
    void *evicted[KEPT];
    int n = 0, i, at = 0;
    if (bytes < KEEP_FROM || bytes > KEPT_BYTES) {
        free(memory);
        return;
    }
    pthread_mutex_lock(&p->memory_lock);
    for (;;) {
        int oldest = -1, empty = -1;
        for (i = 0; i < KEPT; i++) {
            if (!p->kept[i].memory) empty = i;
            else if (oldest < 0 || p->kept[i].age < p->kept[oldest].age) oldest = i;
        }
        at = empty;
        if (empty >= 0 && p->kept_bytes + bytes <= KEPT_BYTES) break;
        evicted[n++] = p->kept[oldest].memory;
        p->kept[oldest].memory = NULL;
        p->kept_bytes -= p->kept[oldest].bytes;
    }
    p->kept[at].memory = memory;
    p->kept[at].bytes = bytes;
    p->kept[at].align = align;
    p->kept[at].age = ++p->age;
    p->kept_bytes += bytes;
    pthread_mutex_unlock(&p->memory_lock);
    for (i = 0; i < n; i++) free(evicted[i]);
}

/* --------------------------------------------------------------------------------- threads */

static void pause_cpu(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __asm__ volatile("pause");
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Wait for work newer than `seen`: spin, then sleep. */
static void await(inlay_posix_t *p, unsigned seen)
{
    int64_t end = now_ns() + SPIN_NS;
    for (;;) {
        int i;
        for (i = 0; i < 64; i++) {
            if (atomic_load_explicit(&p->generation, memory_order_acquire) != seen) return;
            pause_cpu();
        }
        if (now_ns() > end) break;
    }
    pthread_mutex_lock(&p->park_lock);
    atomic_fetch_add(&p->parked, 1);
    while (atomic_load(&p->generation) == seen) pthread_cond_wait(&p->park, &p->park_lock);
    atomic_fetch_sub(&p->parked, 1);
    pthread_mutex_unlock(&p->park_lock);
}

static void *work(void *argument)
{
    worker_t *self = argument;
    inlay_posix_t *p = self->pool;
    unsigned seen = 0;
    for (;;) {
        int64_t part;
        await(p, seen);
        seen = atomic_load(&p->generation);
        if (atomic_load(&p->stop)) return NULL;
        for (part = self->index + 1; part < p->parts; part += p->started + 1)
            p->part(p->argument, part);
        atomic_fetch_sub_explicit(&p->remaining, 1, memory_order_release);
    }
}

/* Keep workers off the CPU that the caller runs on: a sleeping worker that is woken there would
 * wait until the caller, which spins for it, is preempted. */
static void keep_away(pthread_t thread)
{
#ifdef __linux__
    cpu_set_t allowed;
    int here = sched_getcpu();
    if (here < 0 || sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
    if (CPU_COUNT(&allowed) < 2 || !CPU_ISSET((size_t)here, &allowed)) return;
    CPU_CLR((size_t)here, &allowed);
    pthread_setaffinity_np(thread, sizeof allowed, &allowed);
#else
    (void)thread;
#endif
}

/* Start what can be started; fewer workers just take more parts each. Only while not running. */
static void start_workers(inlay_posix_t *p)
{
    while (p->started < p->workers) {
        worker_t *worker = &p->worker[p->started];
        worker->pool = p;
        worker->index = p->started;
        if (pthread_create(&worker->thread, NULL, work, worker) != 0) {
            p->workers = p->started;
            return;
        }
        keep_away(worker->thread);
        p->started++;
    }
}

void inlay_posix_parallel(void *posix, inlay_part_t part, void *argument, int64_t parts)
{
    inlay_posix_t *p = posix;
    int64_t i, end;
    int spins = 0;
    if (!p->workers || getpid() != p->pid || atomic_flag_test_and_set(&p->busy)) {
        for (i = 0; i < parts; i++) part(argument, i);
        return;
    }
    if (p->started < p->workers) start_workers(p);
    p->part = part;
    p->argument = argument;
    p->parts = parts;
    atomic_store(&p->remaining, p->started);
    atomic_fetch_add(&p->generation, 1);
    if (atomic_load(&p->parked) > 0) {
        pthread_mutex_lock(&p->park_lock);
        pthread_cond_broadcast(&p->park);
        pthread_mutex_unlock(&p->park_lock);
    }
    for (i = 0; i < parts; i += p->started + 1) part(argument, i);
    end = now_ns() + SPIN_NS;
    while (atomic_load_explicit(&p->remaining, memory_order_acquire) > 0) {
        pause_cpu();
        /* Beyond the bound the worker may be waiting for this very CPU. */
        if (++spins % 64 == 0 && now_ns() > end) sched_yield();
    }
    atomic_flag_clear(&p->busy);
}

/* -------------------------------------------------------------------------------- mappings */

const uint8_t *inlay_posix_map_file(const char *path, size_t *bytes)
{
    struct stat info;
    void *address;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return NULL;
    if (fstat(file, &info) != 0) {
        close(file);
        return NULL;
    }
    *bytes = (size_t)info.st_size;
    address = mmap(NULL, *bytes ? *bytes : 1, PROT_READ, MAP_PRIVATE, file, 0);
    close(file);
    return address == MAP_FAILED ? NULL : address;
}

const void *inlay_posix_map_code(const char *path, size_t offset, size_t bytes)
{
    void *address;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0) return NULL;
    address = mmap(NULL, bytes, PROT_READ | PROT_EXEC, MAP_PRIVATE, file, (off_t)offset);
    close(file);
    return address == MAP_FAILED ? NULL : address;
}

const void *inlay_posix_copy_code(const uint8_t *code, size_t bytes)
{
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return NULL;
    memcpy(address, code, bytes);
    if (mprotect(address, bytes, PROT_READ | PROT_EXEC) != 0) {
        munmap(address, bytes);
        return NULL;
    }
    __builtin___clear_cache((char *)address, (char *)address + bytes);
    return address;
}

void inlay_posix_unmap(const void *address, size_t bytes)
{
    if (address) munmap((void *)(uintptr_t)address, bytes ? bytes : 1);
}
