/* Execution of commands: one that was taken is run, on this thread, or started, on a device or as a
 * callback that ends later. Neither lock nor role is held meanwhile, and nothing is touched but the command. What has
 * been started may end, on another thread, before the function that starts it has returned. */
#include "delegate.h"
#include "shared.h"

void inlay_execute_one(inlay_activation_t *m, inlay_command_t *c)
{
    inlay_error_t error;
    error.depth = 0;
    error.message[0] = '\0';
    inlay_command_keep(m, c, inlay_command_run(m, c, &error), &error);
}

int inlay_execute_starts(const inlay_activation_t *m)
{
    return m->lock && m->host->start && m->config.mode == INLAY_PARALLEL;
}

static void explain(const inlay_command_t *c, inlay_status_t status, const char *message,
                    inlay_error_t *error)
{
    inlay_fail(error, status, "kernel '", NULL, 0);
    inlay_say_text(error, c->kernel->name);
    inlay_say(error, "' failed: ");
    inlay_say(error, message);
}

/* Start a callback; 0 where it ends later, and may have ended: nothing of it is touched then. */
static int start(inlay_activation_t *m, inlay_command_t *c)
{
    char message[INLAY_MESSAGE_BYTES];
    inlay_status_t status;
    inlay_error_t error;
    c->activation = m;
    c->begun = inlay_trace_now(m);
    message[0] = '\0';
    if (INLAY_RACES_ON(m)) inlay_race_remember(c);
    status = m->host->start(m->host->user, c, c->index, c->tensors, c->kernel->n_ports, c->ints,
                            c->kernel->n_ints, message, sizeof message);
    if (status == INLAY_PENDING) return 0;
    if (status != INLAY_OK) explain(c, status, message, &error);
    else if (INLAY_RACES_ON(m)) status = inlay_race_kept(c, &error);
    inlay_trace_run(m, c, c->begun);
    inlay_command_keep(m, c, status, &error);
    return 1;
}

/* A driver tells the end of a command, on a thread of its own. Not touched after the lock is given
 * back: the issuer waits in `retire` until this has returned. */
static void told(void *argument, inlay_status_t status, int64_t answer, const char *message)
{
    inlay_command_t *c = argument;
    inlay_activation_t *m = c->activation;
    inlay_error_t error;
    if (status != INLAY_OK) inlay_device_explain(m, c, status, answer, message, &error);
    inlay_trace_run(m, c, c->begun);
    inlay_command_keep(m, c, status, &error);
    inlay_lock(m);
    inlay_ready_let_go(m, c, 1, NULL);
    inlay_help_leave(m);
    inlay_unlock(m);
}

/* As `start`, for a command of a device, whose end may be told before the driver has returned. */
static int start_on_device(inlay_activation_t *m, inlay_command_t *c)
{
    inlay_status_t status;
    inlay_error_t error;
    error.depth = 0;
    error.message[0] = '\0';
    c->activation = m;
    c->begun = inlay_trace_now(m);
    c->is_started = 1;
    status = inlay_device_start(m, c, told, c, &error);
    if (status != INLAY_OK) {
        c->is_started = 0;
        inlay_command_keep(m, c, status, &error);
        return 1;
    }
    inlay_lock(m);
    inlay_ready_started(m, c);
    inlay_ready_let_go(m, c, 1, NULL);
    inlay_unlock(m);
    return 0;
}

/* Without the lock: run a command that was taken, and those that are to run as one with it. Where
 * together they fail, each is run alone, to find which. 0 where it was started and ends later. */
static int execute(inlay_activation_t *m, inlay_command_t *c, int is_dropped)
{
    if (is_dropped || (c->mates && inlay_batch_run(m, c, 0))) return 1;
    if (c->delegate) {
        c->delegate->run(c->delegate, (int)c->by_caller);
        return 1;
    }
    if (c->kernel && c->kernel->body == INLAY_BODY_CALLBACK && inlay_execute_starts(m))
        return start(m, c);
    if (inlay_ready_ends_itself(m, c)) return start_on_device(m, c);
    for (; c; c = c->mates) inlay_execute_one(m, c);
    return 1;
}

void inlay_complete(void *ticket, inlay_status_t status, const char *message)
{
    inlay_command_t *c = ticket;
    inlay_activation_t *m = c->activation;
    inlay_error_t error;
    if (status != INLAY_OK) explain(c, status, message ? message : "", &error);
    else if (INLAY_RACES_ON(m)) status = inlay_race_kept(c, &error);
    inlay_trace_run(m, c, c->begun);
    inlay_command_keep(m, c, status, &error);
    /* Once the lock is given back, the call may be over. */
    inlay_lock(m);
    inlay_ready_complete(m, c, NULL);
    inlay_help_leave(m);
    inlay_unlock(m);
}

void inlay_execute(inlay_activation_t *m, inlay_command_t *c, inlay_kept_t *kept)
{
    int is_dropped = (int)c->is_dropped, has_ended;
    c->state = COMMAND_RUNNING;
    c->is_beside = m->shared->n_running++ > 0;
    if (inlay_ready_any(m) || (m->shared->is_waiting && m->shared->alone.n_gathered)) inlay_help_more(m);
    c->is_undivided = c->parts > 1 && inlay_gather_is_full(m);
    inlay_unlock(m);
    has_ended = execute(m, c, is_dropped);
    inlay_lock(m);
    if (--m->shared->n_running && has_ended) c->is_beside = 1;
    if (has_ended) inlay_ready_let_go(m, c, 2, m->config.mode == INLAY_PARALLEL ? kept : NULL);
    inlay_help_wake(m);
}

void inlay_execute_own(inlay_activation_t *m)
{
    inlay_command_t *c;
    inlay_lock(m);
    while (m->issuer.is_caller && (c = inlay_queue_pop(&m->shared->own))) inlay_execute(m, c, NULL);
    inlay_unlock(m);
}
