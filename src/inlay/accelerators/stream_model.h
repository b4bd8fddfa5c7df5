/* What models of accelerators that read a stream share: words, memories, queues, tokens, and a clock.
 *
 * A model refuses what hardware would do wrong in silence: addresses outside of a memory, reads of what nobody
 * wrote, words that say nothing, tokens that never come or are left over.
 *
 * Three queues: one computes, one loads, one stores. Words begin with `op:3 pop_prev:1 pop_next:1 push_prev:1
 * push_next:1`; neighbors of the queue that computes are the other two.
 *
 * Time: a command begins when the one before it in its queue has ended and its tokens are there. A copy has its
 * latency, then the memory outside for its bytes, which one copy has at a time. Of commands that could
 * begin the earliest is first.
 *
 * A model is one file that includes this one, and defines what `device_t` asks for.
 */

#ifndef INLAY_STREAM_MODEL_H
#define INLAY_STREAM_MODEL_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What a run ends with, and returns. */
enum {
    FAULT_NONE,
    FAULT_WORD,     /* a word that says nothing, or a stream without an end */
    FAULT_ADDRESS,  /* a unit that a memory does not have */
    FAULT_OUTSIDE,  /* bytes beyond the region of the memory outside */
    FAULT_POISON,   /* a unit is read that nobody wrote */
    FAULT_DEADLOCK, /* no queue can go on */
    FAULT_TOKENS,   /* tokens are left over */
    FAULT_MEMORY    /* the model has no room for itself */
};

enum { COMPUTE, LOAD, STORE, QUEUES };
enum { LOAD_COMPUTE, COMPUTE_LOAD, COMPUTE_STORE, STORE_COMPUTE, TOKENS };
enum { MOST_MEMORIES = 8 };

/* A memory: units of `unit` bytes, and which of them were written. */
typedef struct {
    uint8_t *bytes, *written;
    int64_t units, unit;
} memory_t;

/* A queue: the numbers of its words, and when the last command ended. */
typedef struct {
    uint32_t *words;
    int64_t count, next, free;
} queue_t;

/* A stack of tokens first in, first out: when each is there. */
typedef struct {
    int64_t *times;
    int64_t pushed, popped;
} token_t;

typedef struct model model_t;

/* What a command takes: cycles by itself, then bytes of the memory outside. */
typedef struct {
    int64_t cycles, bytes;
} time_taken_t;

/* What differs from one device to the next.
 *
 * `word`: bytes of a word. `end`: the `op` of the last one.
 * `queue_of`: the queue of a word by its `op`, or -1. `run`: does what a word says, and returns a fault.
 */
typedef struct {
    int word, end;
    int (*queue_of)(int op);
    int64_t (*run)(model_t *m, const uint8_t *w, time_taken_t *taken);
} device_t;

struct model {
    const device_t *device;
    const int64_t *config;
    int64_t bytes_per_cycle;
    const uint8_t *stream;
    uint8_t *region;
    int64_t size;
    memory_t memories[MOST_MEMORIES];
    int count; /* memories that there are */
    queue_t queues[QUEUES];
    token_t tokens[TOKENS];
    int64_t bus;
    int64_t *report; /* cycles, word, address, queue */
};

/* ---- words */

static int64_t bits(const uint8_t *word, int at, int count) {
    int64_t value = 0;
    for (int i = 0; i < count; ++i) { value |= (int64_t)((word[(at + i) / 8] >> ((at + i) % 8)) & 1) << i; }
    return value;
}

static int64_t signed_bits(const uint8_t *word, int at, int count) {
    int64_t value = bits(word, at, count);
    return value >> (count - 1) ? value - ((int64_t)1 << count) : value;
}

static int op_of(const uint8_t *w) { return (int)bits(w, 0, 3); }

/* ---- memories */

static int64_t fault(model_t *m, int64_t kind, int64_t address) {
    m->report[2] = address;
    return kind;
}

static int64_t check(model_t *m, int memory, int64_t unit, int reads) {
    memory_t *x = &m->memories[memory];
    if (unit < 0 || unit >= x->units) { return fault(m, FAULT_ADDRESS, unit); }
    if (reads && !x->written[unit]) { return fault(m, FAULT_POISON, unit); }
    return FAULT_NONE;
}

static uint8_t *unit_at(model_t *m, int memory, int64_t unit) {
    memory_t *x = &m->memories[memory];
    return x->bytes + unit * x->unit;
}

static void mark(model_t *m, int memory, int64_t unit) { m->memories[memory].written[unit] = 1; }

/* A copy of `y` rows of `x` units, `stride` apart outside and dense inside, with `value` around them. */
typedef struct {
    int64_t chip, dram, y, x, stride, top, bottom, left, right, value;
} move_t;

static int64_t move_units(model_t *m, int memory, const move_t *c, int stores) {
    int64_t unit = m->memories[memory].unit, at = c->chip;
    for (int64_t row = -c->top; row < c->y + c->bottom; ++row) {
        for (int64_t column = -c->left; column < c->x + c->right; ++column, ++at) {
            int64_t wrong = check(m, memory, at, stores);
            if (wrong) { return wrong; }
            uint8_t *chip = unit_at(m, memory, at);
            if (row < 0 || row >= c->y || column < 0 || column >= c->x) {
                memset(chip, (int)(uint8_t)c->value, (size_t)unit);
            } else {
                int64_t first = (c->dram + row * c->stride + column) * unit;
                if (first + unit > m->size) { return fault(m, FAULT_OUTSIDE, first); }
                memcpy(stores ? m->region + first : chip, stores ? chip : m->region + first, (size_t)unit);
            }
            mark(m, memory, at);
        }
    }
    return FAULT_NONE;
}

/* ---- arithmetic */

/* Twice the product, its upper half, ties up; then a shift to the right, ties away from zero. */
static int64_t rescale_tflite(int32_t x, int32_t mul, int shift) {
    int left = shift > 0 ? shift : 0, right = shift > 0 ? 0 : -shift;
    int32_t moved = (int32_t)((uint32_t)x << (left > 31 ? 31 : left));
    int64_t once = ((int64_t)moved * mul + ((int64_t)1 << 30)) >> 31;
    if (right > 31) { right = 31; }
    int64_t mask = ((int64_t)1 << right) - 1, rest = once & mask;
    return (once >> right) + (rest > (mask >> 1) + (once < 0));
}

static int8_t clamped(int64_t value, int64_t zero, int64_t low, int64_t high) {
    value += zero;
    return (int8_t)(value < low ? low : value > high ? high : value);
}

/* Terms of `lanes` lanes: biases, multipliers, shifts, each for all lanes. */
static int32_t term(const uint8_t *terms, int field, int64_t lanes, int64_t lane) {
    int32_t value;
    memcpy(&value, terms + (field * lanes + lane) * 4, 4);
    return value;
}

static int shift_of(const uint8_t *terms, int64_t lanes, int64_t lane) { return (int8_t)terms[8 * lanes + lane]; }

/* The sum of two bytes, each with a bias and a scale of its own: lanes 0 and 1 of the terms, then 2. */
static int8_t scaled_sum(int8_t x, int8_t z, const uint8_t *t, int64_t lanes, int64_t zero, int64_t low, int64_t high) {
    int32_t sum = 0;
    for (int n = 0; n < 2; ++n) {
        uint32_t value = ((uint32_t)(int32_t)(n ? z : x) + (uint32_t)term(t, 0, lanes, n)) << 20;
        int64_t whole = rescale_tflite((int32_t)value, term(t, 1, lanes, n), shift_of(t, lanes, n));
        sum = (int32_t)((uint32_t)sum + (uint32_t)whole);
    }
    return clamped(rescale_tflite(sum, term(t, 1, lanes, 2), shift_of(t, lanes, 2)), zero, low, high);
}

/* The product with a float, ties to even. */
static inline int64_t scale_float(int32_t x, int32_t bits_of_scale) {
    float scale, product;
    memcpy(&scale, &bits_of_scale, sizeof scale);
    product = (float)x * scale;
    if (!(product > -1073741824.0f)) { return -1073741824; }
    if (!(product < 1073741824.0f)) { return 1073741824; }
    int64_t whole = (int64_t)product;
    float rest = product - (float)whole;
    int odd = (int)(whole & 1);
    return whole + (rest > 0.5f || (rest == 0.5f && odd)) - (rest < -0.5f || (rest == -0.5f && odd));
}

/* The sum of two bytes, each with a bias and an integer that it is times: lanes 0 and 1 of the terms. */
static inline int8_t weighted_sum(int8_t x, int8_t z, const uint8_t *t, int64_t lanes, int64_t zero, int64_t low,
                                  int64_t high) {
    uint32_t sum = 0;
    for (int n = 0; n < 2; ++n) {
        uint32_t value = (uint32_t)(int32_t)(n ? z : x) + (uint32_t)term(t, 0, lanes, n);
        sum += value * (uint32_t)term(t, 1, lanes, n);
    }
    return clamped(scale_float((int32_t)sum, term(t, 2, lanes, 0)), zero, low, high);
}

/* ---- time */

/* The tokens of a word: which it waits for (`pops`), or pushes; -1 for none. */
static void tokens_of(int queue, const uint8_t *w, int *pops, int *pushes) {
    int before = queue == COMPUTE, after = queue != STORE;
    pops[0] = !bits(w, 3, 1) ? -1 : before ? LOAD_COMPUTE : queue == STORE ? COMPUTE_STORE : -2;
    pops[1] = !bits(w, 4, 1) ? -1 : before ? STORE_COMPUTE : after ? COMPUTE_LOAD : -2;
    pushes[0] = !bits(w, 5, 1) ? -1 : before ? COMPUTE_LOAD : queue == STORE ? STORE_COMPUTE : -2;
    pushes[1] = !bits(w, 6, 1) ? -1 : before ? COMPUTE_STORE : after ? LOAD_COMPUTE : -2;
}

static const uint8_t *next_word(const model_t *m, const queue_t *q) {
    return m->stream + (int64_t)q->words[q->next] * m->device->word;
}

/* When the next command of a queue can begin, or -1. */
static int64_t ready_at(model_t *m, int queue) {
    queue_t *q = &m->queues[queue];
    if (q->next == q->count) { return -1; }
    int pops[2], pushes[2];
    tokens_of(queue, next_word(m, q), pops, pushes);
    int64_t at = q->free;
    for (int n = 0; n < 2; ++n) {
        if (pops[n] < 0) { continue; }
        token_t *t = &m->tokens[pops[n]];
        if (t->popped == t->pushed) { return -1; }
        at = t->times[t->popped] > at ? t->times[t->popped] : at;
    }
    return at;
}

static int64_t step(model_t *m, int queue, int64_t begin) {
    queue_t *q = &m->queues[queue];
    const uint8_t *w = next_word(m, q);
    int pops[2], pushes[2];
    m->report[1] = q->words[q->next++];
    m->report[3] = queue;
    tokens_of(queue, w, pops, pushes);
    for (int n = 0; n < 2; ++n) {
        if (pops[n] == -2 || pushes[n] == -2) { return fault(m, FAULT_TOKENS, n); }
        if (pops[n] >= 0) { ++m->tokens[pops[n]].popped; }
    }
    time_taken_t taken = {0, 0};
    int64_t wrong = m->device->run(m, w, &taken), end = begin + taken.cycles;
    if (taken.bytes) {
        m->bus = end = (end > m->bus ? end : m->bus) + (taken.bytes + m->bytes_per_cycle - 1) / m->bytes_per_cycle;
    }
    q->free = end;
    for (int n = 0; n < 2; ++n) {
        if (pushes[n] >= 0) { m->tokens[pushes[n]].times[m->tokens[pushes[n]].pushed++] = end; }
    }
    return wrong;
}

static int64_t run_all(model_t *m) {
    for (;;) {
        int64_t first = -1, left = 0;
        int chosen = -1;
        for (int queue = 0; queue < QUEUES; ++queue) {
            int64_t at = ready_at(m, queue);
            left += m->queues[queue].count - m->queues[queue].next;
            if (at >= 0 && (first < 0 || at < first)) { first = at, chosen = queue; }
        }
        if (chosen < 0) {
            if (left) { return fault(m, FAULT_DEADLOCK, left); }
            break;
        }
        int64_t wrong = step(m, chosen, first);
        if (wrong) { return wrong; }
    }
    for (int queue = 0; queue < QUEUES; ++queue) {
        if (m->queues[queue].free > m->report[0]) { m->report[0] = m->queues[queue].free; }
    }
    for (int t = 0; t < TOKENS; ++t) {
        if (m->tokens[t].pushed != m->tokens[t].popped) { return fault(m, FAULT_TOKENS, t); }
    }
    return FAULT_NONE;
}

/* ---- a run */

/* Sort the words of a stream into queues. */
static int64_t fetch(model_t *m, int64_t bytes) {
    int64_t size = m->device->word;
    for (int64_t word = 0; word * size + size <= bytes; ++word) {
        int op = op_of(m->stream + word * size);
        if (op == m->device->end) { return FAULT_NONE; }
        int queue = m->device->queue_of(op);
        m->report[1] = word;
        if (queue < 0) { return fault(m, FAULT_WORD, op); }
        m->queues[queue].words[m->queues[queue].count++] = (uint32_t)word;
    }
    return fault(m, FAULT_WORD, -1);
}

/* Run a stream on a model whose memories have sizes, and room for nothing yet. */
static int64_t run_model(model_t *m, int64_t bytes) {
    int64_t words = bytes / m->device->word + 1, status = FAULT_NONE;
    memset(m->report, 0, 4 * sizeof *m->report);
    for (int n = 0; n < m->count; ++n) {
        memory_t *x = &m->memories[n];
        x->bytes = malloc((size_t)(x->units * x->unit)), x->written = calloc((size_t)x->units, 1);
        if (!x->bytes || !x->written) { status = FAULT_MEMORY; }
    }
    for (int n = 0; n < QUEUES; ++n) {
        m->queues[n].words = malloc((size_t)words * sizeof(uint32_t));
        if (!m->queues[n].words) { status = FAULT_MEMORY; }
    }
    for (int n = 0; n < TOKENS; ++n) {
        m->tokens[n].times = malloc((size_t)words * sizeof(int64_t));
        if (!m->tokens[n].times) { status = FAULT_MEMORY; }
    }
    if (!status) { status = fetch(m, bytes); }
    if (!status) { status = run_all(m); }
    for (int n = 0; n < m->count; ++n) { free(m->memories[n].bytes), free(m->memories[n].written); }
    for (int n = 0; n < QUEUES; ++n) { free(m->queues[n].words); }
    for (int n = 0; n < TOKENS; ++n) { free(m->tokens[n].times); }
    return status;
}

#endif
