/* Memory: large blocks that come back are kept by size, because results of a model have the same
 * sizes each time and fresh pages cost a fault each. Mappings of files and code. */
#define _GNU_SOURCE
#include "posix.h"
#include "pool.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEPT 64
#define KEPT_BYTES ((size_t)512 << 20)
#define KEEP_FROM ((size_t)32 << 10)
#define HUGE_PAGE ((size_t)2 << 20)

typedef struct kept {
    void *memory;
    size_t bytes, align;
    uint64_t age;
} kept_t;

struct inlay_posix {
    pthread_mutex_t memory_lock;
    kept_t kept[KEPT];
    size_t kept_bytes;
    uint64_t age;
    inlay_pool_t *pool;
};

inlay_posix_t *inlay_posix_open(int threads)
{
    inlay_posix_t *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->pool = inlay_pool_open(threads);
    if (!p->pool) {
        free(p);
        return NULL;
    }
    pthread_mutex_init(&p->memory_lock, NULL);
    return p;
}

void inlay_posix_close(inlay_posix_t *p)
{
    int i;
    if (!p) return;
    inlay_pool_close(p->pool);
    for (i = 0; i < KEPT; i++) free(p->kept[i].memory);
    pthread_mutex_destroy(&p->memory_lock);
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

static inlay_pool_t *pool_of(void *posix) { return ((inlay_posix_t *)posix)->pool; }

void inlay_posix_parallel(void *posix, inlay_part_t part, void *argument, int64_t parts)
{
    inlay_pool_parallel(pool_of(posix), part, argument, parts);
}

int64_t inlay_posix_now(void *posix)
{
    (void)posix;
    return inlay_pool_now();
}

static void *open_lock(void *posix) { return inlay_pool_lock_open(pool_of(posix)); }
static void close_lock(void *posix, void *lock)
{
    (void)posix;
    inlay_pool_lock_close(lock);
}
static void take_lock(void *posix, void *lock)
{
    (void)posix;
    inlay_pool_lock(lock);
}
static void give_lock(void *posix, void *lock)
{
    (void)posix;
    inlay_pool_unlock(lock);
}
static void wait(void *posix, void *lock, int64_t ns) { inlay_pool_wait(pool_of(posix), lock, ns); }
static void wake(void *posix, void *lock) { inlay_pool_wake(pool_of(posix), lock); }
static void offer(void *posix, inlay_job_t *job) { inlay_pool_offer(pool_of(posix), job); }
static void withdraw(void *posix, inlay_job_t *job) { inlay_pool_withdraw(pool_of(posix), job); }

const inlay_threads_t inlay_posix_threads = {open_lock, close_lock, take_lock, give_lock, wait,
                                             wake,      offer,      withdraw};

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
