/* A functional model of the accelerator `strawberry`, with a clock.
 *
 * It reads a stream of words of 192 bits, and refuses what hardware would do wrong in silence: addresses outside
 * of a memory, reads of what nobody wrote, words that say nothing, tokens that never come or are left over.
 *
 * Time: a command begins when the one before it in its queue has ended and its tokens are there. A copy needs
 * 40 cycles, then the memory outside for its bytes, which one copy has at a time. Of commands that could
 * begin the earliest is first.
 */

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

enum { ACT, WGT, ACC, PAR, MEMORIES };
enum { COMPUTE, LOAD, STORE, QUEUES };
enum { LOAD_COMPUTE, COMPUTE_LOAD, COMPUTE_STORE, STORE_COMPUTE, TOKENS };
enum { WORD = 24, LATENCY = 40, WAIT = 7 };

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

typedef struct {
    int64_t block, bytes_per_cycle;
    const uint8_t *stream;
    uint8_t *region;
    int64_t size;
    memory_t memories[MEMORIES];
    queue_t queues[QUEUES];
    token_t tokens[TOKENS];
    int64_t bus;
    int64_t *report; /* cycles, word, address, queue */
} model_t;

int64_t strawberry_run(const int64_t *config, const uint8_t *stream, int64_t bytes, uint8_t *region, int64_t size,
                       int64_t *report);

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

typedef struct {
    int op, pop_prev, pop_next, push_prev, push_next, kind;
} head_t;

static head_t head_of(const uint8_t *w) {
    head_t h = {(int)bits(w, 0, 3), (int)bits(w, 3, 1), (int)bits(w, 4, 1),
                (int)bits(w, 5, 1), (int)bits(w, 6, 1), (int)bits(w, 7, 3)};
    return h;
}

/* The queue of a word, or -1: `op` 0 computes, 1 loads, 2 stores, 4 loads parameters. */
static int queue_of(head_t h) {
    switch (h.op) {
    case 0: return COMPUTE;
    case 1: return LOAD;
    case 2: return STORE;
    case 4: return COMPUTE;
    default: return -1;
    }
}

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

/* ---- copies */

typedef struct {
    int64_t chip, dram, y, x, stride, top, bottom, left, right, value;
} move_t;

static move_t move_of(const uint8_t *w) {
    move_t c = {bits(w, 10, 16),  bits(w, 26, 32), bits(w, 58, 16), bits(w, 74, 16), bits(w, 90, 16),
                bits(w, 106, 4), bits(w, 110, 4), bits(w, 114, 4), bits(w, 118, 4), signed_bits(w, 122, 8)};
    return c;
}

static int64_t run_move(model_t *m, const uint8_t *w, head_t h) {
    static const int memories[] = {ACT, WGT, PAR, ACT};
    if (h.kind > 3 || (h.kind == 3) != (h.op == 2) || (h.kind == 2) != (h.op == 4)) {
        return fault(m, FAULT_WORD, h.kind);
    }
    int memory = memories[h.kind], stores = h.kind == 3;
    move_t c = move_of(w);
    if ((h.kind != 0 && (c.top || c.bottom || c.left || c.right))) { return fault(m, FAULT_WORD, h.kind); }
    int64_t unit = m->memories[memory].unit, at = c.chip;
    for (int64_t row = -c.top; row < c.y + c.bottom; ++row) {
        for (int64_t column = -c.left; column < c.x + c.right; ++column, ++at) {
            int64_t wrong = check(m, memory, at, stores);
            if (wrong) { return wrong; }
            uint8_t *chip = unit_at(m, memory, at);
            if (row < 0 || row >= c.y || column < 0 || column >= c.x) {
                memset(chip, (int)(uint8_t)c.value, (size_t)unit);
            } else {
                int64_t first = (c.dram + row * c.stride + column) * unit;
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

/* The product with a float, ties to even. */
static int64_t scale_float(int32_t x, int32_t bits_of_scale) {
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

static int8_t clamped(int64_t value, int64_t zero, int64_t low, int64_t high) {
    value += zero;
    return (int8_t)(value < low ? low : value > high ? high : value);
}

/* Lanes of parameters: biases, multipliers, shifts, each for all lanes. */
static int32_t term(const model_t *m, const uint8_t *unit, int field, int64_t lane) {
    int32_t value;
    memcpy(&value, unit + (field * m->block + lane) * 4, 4);
    return value;
}

static int shift_of(const model_t *m, const uint8_t *unit, int64_t lane) {
    return (int8_t)unit[8 * m->block + lane];
}

/* ---- instructions */

typedef struct {
    int64_t i, j, dst, di, dj, src, si, sj, aux, ai, aj, par, zero, low, high;
} run_t;

static run_t run_of(const uint8_t *w) {
    run_t c = {bits(w, 10, 14),  bits(w, 24, 14),  bits(w, 38, 13),  bits(w, 51, 13), bits(w, 64, 13),
               bits(w, 77, 13),  bits(w, 90, 13),  bits(w, 103, 13),  bits(w, 116, 13), bits(w, 129, 13),
               bits(w, 142, 13), bits(w, 155, 4),  signed_bits(w, 159, 8), signed_bits(w, 167, 8),
               signed_bits(w, 175, 8)};
    return c;
}

static void multiply(const model_t *m, int32_t *a, const int8_t *x, const int8_t *w) {
    for (int64_t k = 0; k < m->block; ++k) {
        for (int64_t o = 0; o < m->block; ++o) {
            a[o] = (int32_t)((uint32_t)a[o] + (uint32_t)((int32_t)x[k] * w[k * m->block + o]));
        }
    }
}

static void finish(const model_t *m, int8_t *y, const int32_t *a, const uint8_t *t, const run_t *c, int floats) {
    for (int64_t o = 0; o < m->block; ++o) {
        int32_t sum = (int32_t)((uint32_t)a[o] + (uint32_t)term(m, t, 0, o)), mul = term(m, t, 1, o);
        int shift = shift_of(m, t, o);
        int64_t whole = floats ? scale_float(sum, mul) : rescale_tflite(sum, mul, shift);
        y[o] = clamped(whole, c->zero, c->low, c->high);
    }
}

static void join(const model_t *m, int8_t *y, const int8_t *x, const int8_t *z, const uint8_t *t, const run_t *c) {
    for (int64_t o = 0; o < m->block; ++o) {
        int64_t whole[2];
        for (int n = 0; n < 2; ++n) {
            int32_t value = n ? z[o] : x[o];
            value = (int32_t)(((uint32_t)value + (uint32_t)term(m, t, 0, n)) << 20);
            whole[n] = rescale_tflite(value, term(m, t, 1, n), shift_of(m, t, n));
        }
        int32_t sum = (int32_t)((uint32_t)whole[0] + (uint32_t)whole[1]);
        y[o] = clamped(rescale_tflite(sum, term(m, t, 1, 2), shift_of(m, t, 2)), c->zero, c->low, c->high);
    }
}

/* Which memories an instruction reads and writes; -1 for none. */
typedef struct {
    int dst, src, aux, strided, par, sums; /* `strided`: `aux` moves; `sums`: `dst` is read, too */
} shape_t;

static const shape_t SHAPES[] = {
    {ACC, -1, -1, 0, 0, 0},  /* clear */
    {ACC, ACT, WGT, 0, 0, 1}, /* gemm */
    {ACC, ACT, ACT, 0, 0, 1}, /* mac */
    {ACT, ACC, -1, 0, 1, 0},  /* finish */
    {ACT, ACC, -1, 0, 1, 0},  /* finish, floats */
    {ACT, ACT, ACT, 1, 1, 0}, /* add */
};

static int64_t checked(model_t *m, shape_t s, const run_t *c, int64_t dst, int64_t src, int64_t aux) {
    int64_t wrong = check(m, s.dst, dst, s.sums);
    if (!wrong && s.src >= 0) { wrong = check(m, s.src, src, 1); }
    if (!wrong && s.aux >= 0) { wrong = check(m, s.aux, aux, 1); }
    return !wrong && s.par ? check(m, PAR, c->par, 1) : wrong;
}

static void element(model_t *m, int kind, const run_t *c, int64_t dst, int64_t src, int64_t aux) {
    shape_t s = SHAPES[kind];
    void *to = unit_at(m, s.dst, dst);
    const void *from = s.src < 0 ? NULL : unit_at(m, s.src, src), *beside = s.aux < 0 ? NULL : unit_at(m, s.aux, aux);
    switch (kind) {
    case 0: memset(to, 0, (size_t)m->memories[ACC].unit); break;
    case 1: multiply(m, to, from, beside); break;
    case 2:
        for (int64_t o = 0; o < m->block; ++o) {
            uint32_t product = (uint32_t)(((const int8_t *)from)[o] * ((const int8_t *)beside)[o]);
            ((int32_t *)to)[o] = (int32_t)((uint32_t)((int32_t *)to)[o] + product);
        }
        break;
    case 3:
    case 4: finish(m, to, from, unit_at(m, PAR, c->par), c, kind == 4); break;
    default: join(m, to, from, beside, unit_at(m, PAR, c->par), c); break;
    }
}

static int64_t run_instruction(model_t *m, const uint8_t *w, head_t h) {
    if (h.kind > 5) { return fault(m, FAULT_WORD, h.kind); }
    run_t c = run_of(w);
    shape_t s = SHAPES[h.kind];
    if (c.i < 1 || c.j < 1) { return fault(m, FAULT_WORD, c.i); }
    for (int64_t i = 0; i < c.i; ++i) {
        for (int64_t j = 0; j < c.j; ++j) {
            int64_t dst = c.dst + i * c.di + j * c.dj, src = c.src + i * c.si + j * c.sj;
            int64_t aux = c.aux + (s.strided ? i * c.ai + j * c.aj : 0);
            int64_t wrong = checked(m, s, &c, dst, src, aux);
            if (wrong) { return wrong; }
            element(m, h.kind, &c, dst, src, aux);
            mark(m, s.dst, dst);
        }
    }
    return FAULT_NONE;
}

/* ---- time */

static int64_t cycles_of(head_t h, const uint8_t *w) {
    static const int64_t more[] = {6, 12, 12, 8, 8, 8};
    if (h.kind == WAIT) { return 0; }
    if (h.op != 0) { return LATENCY; }
    run_t c = run_of(w);
    return h.kind > 5 ? 0 : c.i * c.j * (h.kind == 5 ? 2 : 1) + more[h.kind];
}

/* The tokens of a word: which it waits for (`pops`), or pushes; -1 for none. */
static void tokens_of(int queue, head_t h, int *pops, int *pushes) {
    int before = queue == COMPUTE, after = queue != STORE;
    pops[0] = !h.pop_prev ? -1 : before ? LOAD_COMPUTE : queue == STORE ? COMPUTE_STORE : -2;
    pops[1] = !h.pop_next ? -1 : before ? STORE_COMPUTE : after ? COMPUTE_LOAD : -2;
    pushes[0] = !h.push_prev ? -1 : before ? COMPUTE_LOAD : queue == STORE ? STORE_COMPUTE : -2;
    pushes[1] = !h.push_next ? -1 : before ? COMPUTE_STORE : after ? LOAD_COMPUTE : -2;
}

/* When the next command of a queue can begin, or -1. */
static int64_t ready_at(model_t *m, int queue) {
    queue_t *q = &m->queues[queue];
    if (q->next == q->count) { return -1; }
    int pops[2], pushes[2];
    tokens_of(queue, head_of(m->stream + (int64_t)q->words[q->next] * WORD), pops, pushes);
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
    const uint8_t *w = m->stream + (int64_t)q->words[q->next] * WORD;
    head_t h = head_of(w);
    int pops[2], pushes[2];
    m->report[1] = q->words[q->next++];
    m->report[3] = queue;
    tokens_of(queue, h, pops, pushes);
    for (int n = 0; n < 2; ++n) {
        if (pops[n] == -2 || pushes[n] == -2) { return fault(m, FAULT_TOKENS, n); }
        if (pops[n] >= 0) { ++m->tokens[pops[n]].popped; }
    }
    int64_t end = begin + cycles_of(h, w), wrong = FAULT_NONE;
    if (h.kind != WAIT && h.op == 0) {
        wrong = run_instruction(m, w, h);
    } else if (h.kind != WAIT) {
        wrong = run_move(m, w, h);
        move_t c = move_of(w);
        int64_t unit = h.kind == 1 ? m->block * m->block : h.kind == 2 ? 16 * m->block : m->block;
        int64_t moved = c.y * c.x * unit;
        if (moved) { m->bus = end = (end > m->bus ? end : m->bus) + (moved + m->bytes_per_cycle - 1) / m->bytes_per_cycle; }
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
    for (int64_t word = 0; word * WORD + WORD <= bytes; ++word) {
        head_t h = head_of(m->stream + word * WORD);
        if (h.op == 3) { return FAULT_NONE; }
        int queue = queue_of(h);
        m->report[1] = word;
        if (queue < 0) { return fault(m, FAULT_WORD, h.op); }
        m->queues[queue].words[m->queues[queue].count++] = (uint32_t)word;
    }
    return fault(m, FAULT_WORD, -1);
}

int64_t strawberry_run(const int64_t *config, const uint8_t *stream, int64_t bytes, uint8_t *region, int64_t size,
                       int64_t *report) {
    model_t model = {.block = config[0], .bytes_per_cycle = config[4], .stream = stream, .region = region,
                     .size = size, .report = report};
    const int64_t kib[MEMORIES] = {config[1], config[2], config[3], 4};
    const int64_t units[MEMORIES] = {config[0], config[0] * config[0], config[0] * 4, config[0] * 16};
    int64_t words = bytes / WORD + 1, status = FAULT_NONE;
    memset(report, 0, 4 * sizeof *report);
    for (int n = 0; n < MEMORIES; ++n) {
        memory_t *x = &model.memories[n];
        x->unit = units[n], x->units = kib[n] * 1024 / units[n];
        x->bytes = malloc((size_t)(kib[n] * 1024)), x->written = calloc((size_t)x->units, 1);
        if (!x->bytes || !x->written) { status = FAULT_MEMORY; }
    }
    for (int n = 0; n < QUEUES; ++n) {
        model.queues[n].words = malloc((size_t)words * sizeof(uint32_t));
        if (!model.queues[n].words) { status = FAULT_MEMORY; }
    }
    for (int n = 0; n < TOKENS; ++n) {
        model.tokens[n].times = malloc((size_t)words * sizeof(int64_t));
        if (!model.tokens[n].times) { status = FAULT_MEMORY; }
    }
    if (!status) { status = fetch(&model, bytes); }
    if (!status) { status = run_all(&model); }
    for (int n = 0; n < MEMORIES; ++n) { free(model.memories[n].bytes), free(model.memories[n].written); }
    for (int n = 0; n < QUEUES; ++n) { free(model.queues[n].words); }
    for (int n = 0; n < TOKENS; ++n) { free(model.tokens[n].times); }
    return status;
}
