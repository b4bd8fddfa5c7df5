/* A functional model of the accelerator `vector_unit`, with a clock (`stream_model.h`): words of 128 bits. */

#include "stream_model.h"

enum { VEC, OUT, PAR, MEMORIES };
enum { ADD, LOAD_VECTORS, LOAD_TERMS, STORE_RESULTS, WAIT_LOAD, WAIT_RUN, WAIT_STORE, END };
enum { LATENCY = 20, BYTES_PER_CYCLE = 32, LATENCY_INSIDE = 4, BYTES_INSIDE = 64 };

int64_t vector_unit_run(const int64_t *config, const uint8_t *stream, int64_t bytes, uint8_t *region, int64_t size,
                        int64_t *report);

static int queue_of(int op) {
    switch (op) {
    case LOAD_VECTORS:
    case WAIT_LOAD: return LOAD;
    case STORE_RESULTS:
    case WAIT_STORE: return STORE;
    default: return op == END ? -1 : COMPUTE;
    }
}

/* Rows of results to where vectors are. */
static int64_t run_back(model_t *m, const move_t *c, time_taken_t *taken) {
    int64_t unit = m->memories[OUT].unit;
    taken->cycles = LATENCY_INSIDE + (c->y * c->x * unit + BYTES_INSIDE - 1) / BYTES_INSIDE;
    for (int64_t n = 0; n < c->y * c->x; ++n) {
        int64_t from = c->chip + n, to = c->dram + n / c->x * c->stride + n % c->x;
        int64_t wrong = check(m, OUT, from, 1);
        if (wrong || (wrong = check(m, VEC, to, 0))) { return wrong; }
        memcpy(unit_at(m, VEC, to), unit_at(m, OUT, from), (size_t)unit);
        mark(m, VEC, to);
    }
    return FAULT_NONE;
}

static int64_t run_move(model_t *m, const uint8_t *w, time_taken_t *taken) {
    int op = op_of(w), memory = op == LOAD_VECTORS ? VEC : op == LOAD_TERMS ? PAR : OUT;
    move_t c = {.chip = bits(w, 7, 12), .dram = bits(w, 19, 32), .y = bits(w, 51, 16), .x = bits(w, 67, 16),
                .stride = bits(w, 83, 16)};
    if (op == STORE_RESULTS && bits(w, 99, 1)) { return run_back(m, &c, taken); }
    taken->cycles = LATENCY, taken->bytes = c.y * c.x * m->memories[memory].unit;
    return move_units(m, memory, &c, op == STORE_RESULTS);
}

static int64_t run_add(model_t *m, const uint8_t *w, time_taken_t *taken) {
    int64_t lanes = m->config[0], n = bits(w, 7, 10), y = bits(w, 17, 9), dy = bits(w, 26, 9);
    int64_t x = bits(w, 35, 10), dx = bits(w, 45, 10), z = bits(w, 55, 10), dz = bits(w, 65, 10), par = bits(w, 75, 3);
    int64_t zero = signed_bits(w, 78, 8), low = signed_bits(w, 86, 8), high = signed_bits(w, 94, 8);
    int floats = (int)bits(w, 102, 1);
    if (n < 1) { return fault(m, FAULT_WORD, n); }
    taken->cycles = n + 10;
    int64_t wrong = check(m, PAR, par, 1);
    for (int64_t i = 0; i < n && !wrong; ++i) {
        int64_t to = y + i * dy, a = x + i * dx, b = z + i * dz;
        if ((wrong = check(m, OUT, to, 0)) || (wrong = check(m, VEC, a, 1)) || (wrong = check(m, VEC, b, 1))) { break; }
        const uint8_t *t = unit_at(m, PAR, par), *from = unit_at(m, VEC, a), *beside = unit_at(m, VEC, b);
        for (int64_t o = 0; o < lanes; ++o) {
            int8_t b0 = (int8_t)from[o], b1 = (int8_t)beside[o];
            int8_t sum = floats ? weighted_sum(b0, b1, t, lanes, zero, low, high)
                                : scaled_sum(b0, b1, t, lanes, zero, low, high);
            unit_at(m, OUT, to)[o] = (uint8_t)sum;
        }
        mark(m, OUT, to);
    }
    return wrong;
}

static int64_t run_word(model_t *m, const uint8_t *w, time_taken_t *taken) {
    int op = op_of(w);
    return op == ADD ? run_add(m, w, taken) : op < WAIT_LOAD ? run_move(m, w, taken) : FAULT_NONE;
}

int64_t vector_unit_run(const int64_t *config, const uint8_t *stream, int64_t bytes, uint8_t *region, int64_t size,
                        int64_t *report) {
    static const device_t device = {16, END, queue_of, run_word};
    model_t model = {.device = &device, .config = config, .bytes_per_cycle = BYTES_PER_CYCLE, .stream = stream,
                     .region = region, .size = size, .count = MEMORIES, .report = report};
    const int64_t kib[MEMORIES] = {32, 16, 4}, units[MEMORIES] = {config[0], config[0], config[0] * 16};
    for (int n = 0; n < MEMORIES; ++n) {
        model.memories[n].unit = units[n], model.memories[n].units = kib[n] * 1024 / units[n];
    }
    return run_model(&model, bytes);
}
