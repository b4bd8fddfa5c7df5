/* Hides AVX-512, AMX and AVX-VNNI from a program and what it starts, to measure it as on a processor with AVX2.
 *
 *     cc -O1 -shared -fPIC -o hide_avx512.so benchmarks/hide_avx512.c -ldl
 *     LD_PRELOAD=$PWD/hide_avx512.so python benchmarks/networks.py ...
 *
 * Every engine asks the processor itself what it has (the instruction `cpuid`), or reads /proc/cpuinfo. Linux lets
 * a thread say that `cpuid` shall fault (arch_prctl, ARCH_SET_CPUID; "cpuid_fault" in /proc/cpuinfo says whether
 * the processor can). The handler executes it and clears bits of the answer; threads and what they start inherit
 * both. Where the processor cannot, `benchmarks/replace_cpuid.py` puts another instruction that faults in place of
 * each `cpuid` of the engines' libraries. Who opens /proc/cpuinfo gets a copy without those words. Frequencies and
 * caches stay those of the machine. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define ARCH_SET_CPUID 0x1012
#define BIT(n) (1u << (n))

enum { CPUID = 0xa2, UD2 = 0x0b }; /* behind 0x0f; replace_cpuid.py writes the second in place of the first */

static void let_cpuid(int run) { syscall(SYS_arch_prctl, ARCH_SET_CPUID, run); }

static void hide(unsigned leaf, unsigned part, unsigned *b, unsigned *c, unsigned *d, unsigned *a)
{
    if (leaf == 7 && part == 0) { /* AVX512 F DQ IFMA PF ER CD BW VL; VBMI VBMI2 VNNI BITALG VPOPCNTDQ; the rest, AMX */
        *b &= ~(BIT(16) | BIT(17) | BIT(21) | BIT(26) | BIT(27) | BIT(28) | BIT(30) | BIT(31));
        *c &= ~(BIT(1) | BIT(6) | BIT(11) | BIT(12) | BIT(14));
        *d &= ~(BIT(2) | BIT(3) | BIT(8) | BIT(22) | BIT(23) | BIT(24) | BIT(25));
    } else if (leaf == 7 && part == 1) { /* AVX-VNNI, AVX512_BF16, AMX-FP16, AVX-IFMA; AVX-VNNI-INT8, AVX10, ... */
        *a &= ~(BIT(4) | BIT(5) | BIT(21) | BIT(22) | BIT(23));
        *d &= ~(BIT(4) | BIT(5) | BIT(8) | BIT(10) | BIT(19));
    }
}

static void answer(int number, siginfo_t *info, void *context)
{
    greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
    const unsigned char *at = (const unsigned char *)r[REG_RIP];
    unsigned leaf = (unsigned)r[REG_RAX], part = (unsigned)r[REG_RCX], a = leaf, c = part, b, d;
    unsigned char expected = number == SIGILL ? UD2 : CPUID;
    (void)info;
    if (at[0] != 0x0f || at[1] != expected) { /* a fault of the program: it ends as without this */
        signal(number, SIG_DFL);
        return;
    }
    if (number == SIGSEGV) let_cpuid(1);
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    if (number == SIGSEGV) let_cpuid(0);
    hide(leaf, part, &b, &c, &d, &a);
    r[REG_RAX] = a, r[REG_RBX] = b, r[REG_RCX] = c, r[REG_RDX] = d;
    r[REG_RIP] += 2;
}

/* A copy of /proc/cpuinfo without the words, or -1. */
static int open_copy(void)
{
    static const char *const hidden[] = {" avx512", " avx_vnni", " avx10", " amx_"};
    int from = (int)syscall(SYS_openat, AT_FDCWD, "/proc/cpuinfo", O_RDONLY), to = memfd_create("cpuinfo", 0);
    FILE *in = from < 0 ? NULL : fdopen(from, "r"), *out = to < 0 ? NULL : fdopen(dup(to), "w");
    char *line = NULL;
    size_t size = 0, i;
    while (in && out && getline(&line, &size, in) > 0) {
        for (i = 0; i < sizeof hidden / sizeof *hidden; i++) {
            char *word;
            while ((word = strstr(line, hidden[i]))) {
                char *end = word + 1 + strcspn(word + 1, " \n");
                memmove(word, end, strlen(end) + 1);
            }
        }
        fputs(line, out);
    }
    free(line);
    if (in) fclose(in);
    if (out) fclose(out);
    if (to >= 0) lseek(to, 0, SEEK_SET);
    return to;
}

static int open_at(int folder, const char *path, int flags, mode_t mode)
{
    if (path && !strcmp(path, "/proc/cpuinfo")) return open_copy();
    return (int)syscall(SYS_openat, folder, path, flags, mode);
}

#define MODE_OF(flags)                                                                                                 \
    mode_t mode = 0;                                                                                                   \
    if ((flags) & (O_CREAT | O_TMPFILE)) {                                                                             \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode = va_arg(rest, mode_t);                                                                                   \
        va_end(rest);                                                                                                  \
    }

int open(const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at(AT_FDCWD, path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    MODE_OF(flags)
    return open_at(folder, path, flags, mode);
}

static FILE *open_stream(const char *name, const char *path, const char *mode)
{
    FILE *(*next)(const char *, const char *) = dlsym(RTLD_NEXT, name);
    return path && !strcmp(path, "/proc/cpuinfo") ? fdopen(open_copy(), mode) : next(path, mode);
}

FILE *fopen(const char *path, const char *mode) { return open_stream("fopen", path, mode); }
FILE *fopen64(const char *path, const char *mode) { return open_stream("fopen64", path, mode); }

__attribute__((constructor)) static void begin(void)
{
    struct sigaction action = {0};
    action.sa_sigaction = answer;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    sigaction(SIGILL, &action, NULL);
    if (!syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0))
        sigaction(SIGSEGV, &action, NULL);
    else
        fputs("hide_avx512: cpuid does not fault here; only what replace_cpuid.py changed is told less\n", stderr);
}
