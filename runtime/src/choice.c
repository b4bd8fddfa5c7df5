/* The choice of a mode for a call, sequential or parallel, where the host leaves it to the runtime.
 *
 * What two threads gain depends on kernels, sizes, memory and on who else uses the processors; the
 * time of a call tells it. Each activation keeps for each entry what calls took, in either way, over
 * what their kernels were predicted to take, so that calls of other sizes compare. Both are tried a
 * few times in a row, for threads that have slept take as long to wake as a short call does; then the faster
 * one is taken. Parallel mode has to save a thirty-second, for it keeps more processors busy. Now and then the
 * other one is tried again, often at first: the mode that is tried first pays for pages and caches that the
 * other one finds warm (GoogLeNet on two threads of Zen 4: 35, 23 and 19 ms, 11.4 later; parallel mode 12.5).
 *
 * A rate is the least that was seen: other programs make a call longer, never shorter. It forgets
 * slowly, towards what is seen. Values do not depend on the choice, only when kernels run. */
#include "machine.h"

#include <string.h>

#define TRIES 3u
#define AGAIN 128u
#define SCALE 1024

enum { SEQUENTIAL, PARALLEL };

int inlay_choice_open(inlay_activation_t *m)
{
    size_t bytes = m->module->n_entries * sizeof *m->choices;
    if (!m->config.chooses || !m->host->now || !bytes) return 1;
    m->choices = m->host->allocate(m->host->user, bytes, 64);
    if (m->choices) memset(m->choices, 0, bytes);
    return m->choices != NULL;
}

void inlay_choice_close(inlay_activation_t *m)
{
    if (m->choices)
        m->host->release(m->host->user, m->choices, m->module->n_entries * sizeof *m->choices, 64);
}

/* Whether a call tries what is slower, by how many there were before it: the first ones from 6, 12, 24, 48 and 96
 * on, and later of each AGAIN. */
static int is_trial(uint32_t calls)
{
    uint32_t begin = 2 * TRIES;
    if (calls >= AGAIN) return calls % AGAIN < TRIES;
    while (2 * begin <= calls) begin *= 2;
    return calls - begin < TRIES;
}

static uint32_t choose(const inlay_choice_t *choice)
{
    uint32_t calls = choice->calls[SEQUENTIAL] + choice->calls[PARALLEL], best;
    if (calls < 2 * TRIES) return calls < TRIES ? SEQUENTIAL : PARALLEL;
    best = choice->rates[PARALLEL] < choice->rates[SEQUENTIAL] / 32 * 31 ? PARALLEL : SEQUENTIAL;
    return is_trial(calls) ? 1 - best : best;
}

int64_t inlay_choice_begin(inlay_activation_t *m, uint32_t entry)
{
    m->issuer.is_sequential =
        m->config.mode == INLAY_SEQUENTIAL || (m->is_alone && !m->module->has_batches);
    if (!m->choices) return 0;
    m->issuer.work = 0;
    if (choose(&m->choices[entry]) == SEQUENTIAL) m->issuer.is_sequential = 1;
    return m->host->now(m->host->user);
}

void inlay_choice_end(inlay_activation_t *m, uint32_t entry, int64_t begin)
{
    inlay_choice_t *choice;
    uint32_t way = m->issuer.is_sequential ? SEQUENTIAL : PARALLEL;
    int64_t rate, *known;
    if (!m->choices) return;
    choice = &m->choices[entry];
    rate = (m->host->now(m->host->user) - begin) * SCALE / (m->issuer.work > 0 ? m->issuer.work : 1);
    known = &choice->rates[way];
    *known = !choice->calls[way]++ || rate < *known ? rate : *known + (rate - *known) / 16;
}
