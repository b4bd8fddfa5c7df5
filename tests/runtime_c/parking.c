/* Threads that sleep and are called, under the thread sanitizer: no call is lost, however it meets the end of
 * the time of a sleeper, and nobody is left in the list. */
#include <sched.h>
#include <stdio.h>

#include "platform/parking.h"

#define TURNS 4000
#define SLEEPERS 5
#define LOST_NS 5000000000 /* nobody sleeps for so long but for a call that was lost */

static parking_t parking;

/* What two threads change in turns, and how many sleep until it does. */
typedef struct turn {
    atomic_uint word;
    atomic_int count;
} turn_t;

static turn_t turn;
static atomic_int lost, slept, called, stop;

/* Sleep until a word is no longer what was seen; for `ns`, or as long as it takes. */
static void sleep_on(turn_t *on, unsigned seen, int64_t ns)
{
    const int64_t begun = inlay_parking_now();
    sleeper_t self = {.of = on, .count = &on->count};
    inlay_parking_sleep(&parking, &self, &on->word, seen, ns < 0 ? ns : begun + ns);
    if (inlay_parking_now() - begun > LOST_NS) atomic_fetch_add(&lost, 1);
    if (self.next || self.previous) atomic_fetch_add(&lost, 1);
}

static void advance(turn_t *of, int n)
{
    atomic_fetch_add(&of->word, 1);
    if (atomic_load(&of->count)) atomic_fetch_add(&called, inlay_parking_call(&parking, n, of, 0));
}

/* The turn of this thread is every second one. */
static void *take_turns(void *argument)
{
    const unsigned mine = *(const unsigned *)argument;
    unsigned seen;
    while ((seen = atomic_load(&turn.word)) < TURNS)
        if (seen % 2 == mine) advance(&turn, 1);
        else sleep_on(&turn, seen, seen % 3 ? 2 * LOST_NS : -1);
    return NULL;
}

/* Sleep for times that end about when the calls come. */
static void *doze(void *argument)
{
    turn_t *on = argument;
    int i;
    for (i = 0; !atomic_load(&stop); i++) {
        sleep_on(on, atomic_load(&on->word), i % 7 * 10000);
        atomic_fetch_add(&slept, 1);
    }
    return NULL;
}

static int alternate(void)
{
    unsigned first = 0, second = 1;
    pthread_t other;
    if (pthread_create(&other, NULL, take_turns, &second) != 0) return 0;
    take_turns(&first);
    pthread_join(other, NULL);
    return 1;
}

static int meet(void)
{
    static turn_t on[2];
    pthread_t threads[SLEEPERS];
    int i, n = 0;
    for (i = 0; i < SLEEPERS; i++) n += pthread_create(&threads[i], NULL, doze, &on[i % 2]) == 0;
    for (i = 0; i < TURNS; i++) {
        advance(&on[i % 2], i % 3);
        if (i % 5 == 0) inlay_parking_call(&parking, 1, &on[0], 1);
        sched_yield();
    }
    atomic_store(&stop, 1);
    for (i = 0; i < n; i++) pthread_join(threads[i], NULL);
    return n == SLEEPERS && !atomic_load(&on[0].count) && !atomic_load(&on[1].count);
}

int main(void)
{
    int alternated, met;
    inlay_parking_open(&parking);
    alternated = alternate();
    met = meet();
    printf("%d slept, %d called, %d lost, %d in the list\n", atomic_load(&slept), atomic_load(&called),
           atomic_load(&lost), atomic_load(&parking.parked));
    if (!alternated || !met || atomic_load(&lost) || atomic_load(&parking.parked)) return 1;
    if (!atomic_load(&slept) || !atomic_load(&called)) return 1;
    inlay_parking_close(&parking);
    return 0;
}
