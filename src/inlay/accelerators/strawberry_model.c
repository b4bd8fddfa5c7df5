/* A functional model of the accelerator `strawberry`, with a clock (`stream_model.h`): words of 192 bits. */

#include "stream_model.h"

enum { ACT, WGT, ACC, PAR, MEMORIES };
enum { LATENCY = 40, WAIT = 7 };

int64_t strawberry_run(const int64_t *config, const uint8_t *stream, int64_t bytes, uint8_t *region, int64_t size,
                       int64_t *report);

static int64_t block_of(const model_t *m) { return m->config[0]; }

/* `op` 0 computes, 1 loads, 2 stores, 4 loads parameters. */
static int queue_of(int op) { return op == 0 || op == 4 ? COMPUTE : op == 1 ? LOAD : op == 2 ? STORE : -1; }

static int kind_of(const uint8_t *w) { return (int)bits(w, 7, 3); }

/* ---- copies */

static int64_t run_move(model_t *m, const uint8_t *w, time_taken_t *taken) {
    static const int memories[] = {ACT, WGT, PAR, ACT};
    int kind = kind_of(w), op = op_of(w);
    if (kind > 3 || (kind == 3) != (op == 2) || (kind == 2) != (op == 4)) { return fault(m, FAULT_WORD, kind); }
    move_t c = {bits(w, 10, 16), bits(w, 26, 32), bits(w, 58, 16), bits(w, 74, 16), bits(w, 90, 16),
                bits(w, 106, 4), bits(w, 110, 4), bits(w, 114, 4), bits(w, 118, 4), signed_bits(w, 122, 8)};
    if (kind != 0 && (c.top || c.bottom || c.left || c.right)) { return fault(m, FAULT_WORD, kind); }
    taken->cycles = LATENCY, taken->bytes = c.y * c.x * m->memories[memories[kind]].unit;
    return move_units(m, memories[kind], &c, kind == 3);
}

/* ---- instructions */

typedef struct {
    int64_t i, j, dst, di, dj, src, si, sj, aux, ai, aj, par, zero, low, high;
} run_t;

static run_t run_of(const uint8_t *w) {
    run_t c = {bits(w, 10, 14),  bits(w, 24, 14),  bits(w, 38, 13),  bits(w, 51, 13),       bits(w, 64, 13),
               bits(w, 77, 13),  bits(w, 90, 13),  bits(w, 103, 13), bits(w, 116, 13),      bits(w, 129, 13),
               bits(w, 142, 13), bits(w, 155, 4),  signed_bits(w, 159, 8), signed_bits(w, 167, 8),
               signed_bits(w, 175, 8)};
    return c;
}

static void multiply(int64_t block, int32_t *a, const int8_t *x, const int8_t *w) {
    for (int64_t k = 0; k < block; ++k) {
        for (int64_t o = 0; o < block; ++o) {
            a[o] = (int32_t)((uint32_t)a[o] + (uint32_t)((int32_t)x[k] * w[k * block + o]));
        }
    }
}

static void multiply_lanes(int64_t block, int32_t *a, const int8_t *x, const int8_t *w) {
    for (int64_t o = 0; o < block; ++o) { a[o] = (int32_t)((uint32_t)a[o] + (uint32_t)((int32_t)x[o] * w[o])); }
}

static void finish(int64_t block, int8_t *y, const int32_t *a, const uint8_t *t, const run_t *c, int floats) {
    for (int64_t o = 0; o < block; ++o) {
        int32_t sum = (int32_t)((uint32_t)a[o] + (uint32_t)term(t, 0, block, o)), mul = term(t, 1, block, o);
        int64_t whole = floats ? scale_float(sum, mul) : rescale_tflite(sum, mul, shift_of(t, block, o));
        y[o] = clamped(whole, c->zero, c->low, c->high);
    }
}

/* Which memories an instruction reads and writes; -1 for none. What it takes of time. */
typedef struct {
    int dst, src, aux, strided, par, sums; /* `strided`: `aux` moves; `sums`: `dst` is read, too */
    int each, more;                        /* cycles of an element, and beside them */
} shape_t;

static const shape_t SHAPES[] = {
    {ACC, -1, -1, 0, 0, 0, 1, 6},   /* clear */
    {ACC, ACT, WGT, 0, 0, 1, 1, 12}, /* gemm */
    {ACC, ACT, ACT, 0, 0, 1, 1, 12}, /* mac */
    {ACT, ACC, -1, 0, 1, 0, 1, 8},  /* finish */
    {ACT, ACC, -1, 0, 1, 0, 1, 8},  /* finish, floats */
    {ACT, ACT, ACT, 1, 1, 0, 2, 8}, /* add */
    {ACT, ACT, ACT, 1, 1, 0, 2, 8}, /* add, floats */
};

static int64_t checked(model_t *m, shape_t s, const run_t *c, int64_t dst, int64_t src, int64_t aux) {
    int64_t wrong = check(m, s.dst, dst, s.sums);
    if (!wrong && s.src >= 0) { wrong = check(m, s.src, src, 1); }
    if (!wrong && s.aux >= 0) { wrong = check(m, s.aux, aux, 1); }
    return !wrong && s.par ? check(m, PAR, c->par, 1) : wrong;
}

static void element(model_t *m, int kind, const run_t *c, int64_t dst, int64_t src, int64_t aux) {
    shape_t s = SHAPES[kind];
    int64_t block = block_of(m);
    void *to = unit_at(m, s.dst, dst);
    const void *from = s.src < 0 ? NULL : unit_at(m, s.src, src), *beside = s.aux < 0 ? NULL : unit_at(m, s.aux, aux);
    const uint8_t *t = s.par ? unit_at(m, PAR, c->par) : NULL;
    switch (kind) {
    case 0: memset(to, 0, (size_t)m->memories[ACC].unit); break;
    case 1: multiply(block, to, from, beside); break;
    case 2: multiply_lanes(block, to, from, beside); break;
    case 3:
    case 4: finish(block, to, from, t, c, kind == 4); break;
    default:
        for (int64_t o = 0; o < block; ++o) {
            int8_t x = ((const int8_t *)from)[o], z = ((const int8_t *)beside)[o];
            int8_t sum = kind == 5 ? scaled_sum(x, z, t, block, c->zero, c->low, c->high)
                                   : weighted_sum(x, z, t, block, c->zero, c->low, c->high);
            ((int8_t *)to)[o] = sum;
        }
    }
}

static int64_t run_instruction(model_t *m, const uint8_t *w, time_taken_t *taken) {
    int kind = kind_of(w);
    if (kind > 6) { return fault(m, FAULT_WORD, kind); }
    run_t c = run_of(w);
    shape_t s = SHAPES[kind];
    if (c.i < 1 || c.j < 1) { return fault(m, FAULT_WORD, c.i); }
    taken->cycles = c.i * c.j * s.each + s.more;
    for (int64_t i = 0; i < c.i; ++i) {
        for (int64_t j = 0; j < c.j; ++j) {
            int64_t dst = c.dst + i * c.di + j * c.dj, src = c.src + i * c.si + j * c.sj;
            int64_t aux = c.aux + (s.strided ? i * c.ai + j * c.aj : 0);
            int64_t wrong = checked(m, s, &c, dst, src, aux);
            if (wrong) { return wrong; }
            element(m, kind, &c, dst, src, aux);
            mark(m, s.dst, dst);
        }
    }
    return FAULT_NONE;
}

static int64_t run_word(model_t *m, const uint8_t *w, time_taken_t *taken) {
    if (kind_of(w) == WAIT) { return FAULT_NONE; }
    return op_of(w) == 0 ? run_instruction(m, w, taken) : run_move(m, w, taken);
}

int64_t strawberry_run(const int64_t *config, const uint8_t *stream, int64_t bytes, uint8_t *region, int64_t size,
                       int64_t *report) {
    static const device_t device = {24, 3, queue_of, run_word};
    model_t model = {.device = &device, .config = config, .bytes_per_cycle = config[4], .stream = stream,
                     .region = region, .size = size, .count = MEMORIES, .report = report};
    const int64_t kib[MEMORIES] = {config[1], config[2], config[3], 4}, block = config[0];
    const int64_t units[MEMORIES] = {block, block * block, block * 4, block * 16};
    for (int n = 0; n < MEMORIES; ++n) {
        model.memories[n].unit = units[n], model.memories[n].units = kib[n] * 1024 / units[n];
    }
    return run_model(&model, bytes);
}
