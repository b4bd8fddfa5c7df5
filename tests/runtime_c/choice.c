/* Which way calls go, by a clock that says what they took. */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                               \
    do {                                                               \
        if (!(condition)) {                                            \
            printf("line %d: %s\n", __LINE__, #condition);             \
            exit(1);                                                   \
        }                                                              \
    } while (0)

int inlay_choice_open(inlay_activation_t *m);

static int64_t clock_ns;
static int64_t now(void *user) { (void)user; return clock_ns; }

/* One call that takes so long in either mode; whether it was sequential. */
static int call(inlay_activation_t *m, int64_t work, int64_t sequential, int64_t parallel)
{
    int64_t begin = inlay_choice_begin(m, 0);
    m->issuer.work = work;
    clock_ns += m->issuer.is_sequential ? sequential : parallel;
    inlay_choice_end(m, 0, begin);
    return (int)m->issuer.is_sequential;
}

/* Of so many calls, how many were sequential. */
static int calls(inlay_activation_t *m, int n, int64_t sequential, int64_t parallel)
{
    int i, found = 0;
    for (i = 0; i < n; i++) {
        int64_t size = 1 + i % 7; /* calls of different sizes compare */
        found += call(m, 1000 * size, sequential * size, parallel * size);
    }
    return found;
}

int main(void)
{
    inlay_choice_t choice;
    inlay_module_t module;
    inlay_host_t host;
    inlay_activation_t m;
    memset(&module, 0, sizeof module);
    memset(&host, 0, sizeof host);
    memset(&m, 0, sizeof m);
    memset(&choice, 0, sizeof choice);
    host.now = now;
    m.module = &module;
    m.host = &host;
    m.config.mode = INLAY_PARALLEL;
    CHECK(call(&m, 1, 1, 1) == 0); /* without a choice, as the mode says */
    m.config.mode = INLAY_SEQUENTIAL;
    CHECK(call(&m, 1, 1, 1) == 1);
    m.config.mode = INLAY_PARALLEL;
    m.choices = &choice;
    CHECK(calls(&m, 6, 1000, 700) == 3);      /* both are tried */
    CHECK(calls(&m, 1000, 1000, 700) < 40);   /* the faster one is taken, the other one tried again */
    CHECK(calls(&m, 2000, 1000, 1200) > 900); /* what was faster is not any more */
    CHECK(calls(&m, 1000, 1000, 1200) > 970);
    CHECK(calls(&m, 4000, 1000, 500) < 3500); /* and is again */
    CHECK(calls(&m, 1000, 1000, 500) < 30);
    memset(&choice, 0, sizeof choice);
    calls(&m, 6, 1000, 980);
    CHECK(calls(&m, 1000, 1000, 980) > 960);  /* a little faster is not enough */
    memset(&choice, 0, sizeof choice);
    CHECK(calls(&m, 6, 2000, 1250) == 3);     /* the first calls take longer */
    CHECK(calls(&m, 3, 1000, 1250) > 0);      /* so that mode is tried again at once */
    CHECK(calls(&m, 119, 1000, 1250) > 105);
    memset(&choice, 0, sizeof choice);
    CHECK(call(&m, 0, 5, 5) == 1);            /* nothing was predicted */
    return 0;
}
