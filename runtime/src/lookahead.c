/* The bound of lookahead: how far the issuer goes ahead of what it could run itself.
 *
 * A kernel that is put off gains something only where another one runs beside it. To find that one
 * takes a command for each kernel on the way, and a command costs as much as a kernel of half a
 * microsecond. So it is paid for. The issuer has credit, in ns:
 *
 *   a command made while nobody else works for the call     costs INLAY_ISSUE_NS
 *   one made while another thread does                      is free: nothing waits for the issuer
 *   the first call of an activation                         begins with INLAY_LOOKAHEAD_NS
 *   a command that ran beside another one                   gives a quarter of its predicted time:
 *                                                           both do, so half of what was gained
 *   a long kernel that was not put off                      gives a 64th of it, to look again later
 *
 * Without credit, the issuer runs what is ready, and then what is next at once, as in sequential
 * mode. What is left is for the next call. So a chain costs what it costs there and a 64th more, and
 * independent work pays for its own discovery. Only when kernels run depends on it, never what they compute.
 *
 * While delegates run calls on all other threads (delegate.c) there is nobody to run what is put off.
 *
 * Kernels that gather to batches, callbacks and devices gain by being put off in any case: programs
 * with those look ahead without bounds. All of this is of the issuer but `is_beside` of a command. */
#include "shared.h"

#define AGAIN 64
#define SHARE 4

void inlay_lookahead_open(inlay_activation_t *m)
{
    uint32_t i;
    m->is_paid = m->config.mode == INLAY_PARALLEL && !m->module->n_devices &&
                      !m->module->has_batches;
    for (i = 0; i < m->module->n_kernels; i++)
        if (m->module->kernels[i].body == INLAY_BODY_CALLBACK) m->is_paid = 0;
    m->issuer.credit = INLAY_LOOKAHEAD_NS;
}

int inlay_lookahead_pays(const inlay_activation_t *m)
{
    if (inlay_all_delegated(m)) return 0;
    return !m->is_paid || m->issuer.is_beside || m->issuer.credit > 0;
}

static void give(inlay_activation_t *m, int64_t ns)
{
    int64_t *credit = &m->issuer.credit;
    *credit = ns < INLAY_MOST_LOOKAHEAD_NS - *credit ? *credit + ns : INLAY_MOST_LOOKAHEAD_NS;
}

void inlay_lookahead_ran(inlay_activation_t *m, int64_t ns) { give(m, ns / AGAIN); }

void inlay_lookahead_retired(inlay_activation_t *m, const inlay_command_t *c)
{
    if (c->is_beside) give(m, c->ns / SHARE);
}

void inlay_lookahead_look(inlay_activation_t *m)
{
    m->issuer.is_beside = m->shared->n_running > 0;
}

void inlay_lookahead_issued(inlay_activation_t *m)
{
    inlay_lookahead_look(m);
    if (!m->issuer.is_beside) m->issuer.credit -= INLAY_ISSUE_NS;
}
