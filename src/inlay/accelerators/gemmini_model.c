/* A functional model of Gemmini with a clock: a trace of its custom instructions, `funct`, `rs1`, `rs2`, 17 bytes each.
 *
 * What `gemmini.py` uses is there, and anything else refused, as are rows that a memory does not have, reads of
 * what nobody wrote, and bytes beyond the region of main memory.
 *
 * Three queues take their commands in order. A command begins when all before it in the trace have ended that touch
 * the same rows, if one of both writes: for each row is known who wrote it last, and who of each queue read it last.
 * Copies move bytes when the bus is free; of commands that could begin the earliest is first.
 */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { FAULT_NONE, FAULT_WORD, FAULT_ADDRESS, FAULT_OUTSIDE, FAULT_POISON, FAULT_DEADLOCK, FAULT_MEMORY };
enum { LOAD, EXECUTE, STORE, QUEUES };
enum { DIM = 16, WORD = 17, SPAD = 16384, ACC = 1024, ROWS = SPAD + ACC, LATENCY = 8, NO_ROW = -1 };
enum { CONFIG = 0, MVIN2 = 1, MVIN = 2, MVOUT = 3, COMPUTE = 4, PRELOAD = 6, END = 127 };

static const uint32_t NONE = 0xFFFFFFFF;

/* A command, with what registers said when it was given. Rows of the accumulator stand behind those of the scratchpad. */
typedef struct {
    int queue, adds;
    int64_t word, address, stride;       /* of a copy, in main memory */
    int64_t rows, row;                   /* copied */
    int64_t a, a_stride, b, c, c_stride; /* of a product; NO_ROW for zeros */
    int64_t needs[QUEUES];               /* how many commands of each queue must have ended */
    int64_t end;
} command_t;

/* Who wrote a row last, and who of each queue read it: commands of that queue until then, with it. */
typedef struct {
    int32_t writer, written, readers[QUEUES];
} touched_t;

typedef struct {
    uint8_t *region;
    int64_t size, bus_bytes, bus, *report;
    int8_t spad[SPAD][DIM];
    int32_t acc[ACC][DIM];
    uint8_t filled[ROWS];
    touched_t touched[ROWS];
    int64_t load_strides[3], store_stride, a_stride, c_stride;
    uint64_t preload[2];
    int is_preloaded;
    command_t *commands;
    int64_t count, *queues[QUEUES], given[QUEUES], done[QUEUES], free[QUEUES];
} model_t;

int64_t gemmini_run(const int64_t *config, const uint8_t *stream, int64_t bytes, uint8_t *region, int64_t size,
                    int64_t *report);

static int64_t fault(model_t *m, int64_t kind, int64_t address) {
    m->report[2] = address;
    return kind;
}

static uint64_t number(const uint8_t *at) {
    uint64_t value = 0;
    for (int i = 0; i < 8; ++i) { value |= (uint64_t)at[i] << (8 * i); }
    return value;
}

static int64_t part(uint64_t value, int at, int bits) { return (int64_t)(value >> at & (((uint64_t)1 << bits) - 1)); }

/* ---- what commands touch */

static int64_t touch(model_t *m, command_t *c, int64_t row, int reads, int writes) {
    if (row < 0 || row >= ROWS) { return fault(m, FAULT_ADDRESS, row); }
    touched_t *t = &m->touched[row];
    if (t->written > c->needs[t->writer]) { c->needs[t->writer] = t->written; }
    for (int q = 0; writes && q < QUEUES; ++q) {
        if (t->readers[q] > c->needs[q]) { c->needs[q] = t->readers[q]; }
    }
    int32_t mine = (int32_t)m->given[c->queue] + 1;
    if (reads) { t->readers[c->queue] = mine; }
    if (writes) { t->writer = c->queue, t->written = mine; }
    return FAULT_NONE;
}

static int64_t touch_all(model_t *m, command_t *c) {
    int64_t wrong = FAULT_NONE;
    for (int64_t i = 0; i < c->rows && !wrong; ++i) {
        switch (c->queue) {
        case LOAD: wrong = touch(m, c, c->row + i, 0, 1); break;
        case STORE: wrong = touch(m, c, c->row + i, 1, 0); break;
        default:
            if (c->a != NO_ROW) { wrong = touch(m, c, c->a + i * c->a_stride, 1, 0); }
            if (!wrong) { wrong = touch(m, c, c->c + i * c->c_stride, c->adds, 1); }
        }
    }
    for (int i = 0; c->queue == EXECUTE && c->b != NO_ROW && i < DIM && !wrong; ++i) {
        wrong = touch(m, c, c->b + i, 1, 0);
    }
    return wrong;
}

static int64_t give(model_t *m, command_t c) {
    int64_t wrong = touch_all(m, &c);
    if (wrong) { return wrong; }
    m->queues[c.queue][m->given[c.queue]++] = m->count;
    m->commands[m->count++] = c;
    return FAULT_NONE;
}

/* ---- words */

static int64_t configure(model_t *m, uint64_t rs1, uint64_t rs2) {
    int64_t which = part(rs1, 3, 2);
    switch (part(rs1, 0, 2)) {
    case 0:
        if (!part(rs1, 2, 1) || part(rs1, 3, 13) || part(rs1, 32, 32) || part(rs2, 0, 48)) { return FAULT_WORD; }
        m->a_stride = part(rs1, 16, 16), m->c_stride = part(rs2, 48, 16);
        return FAULT_NONE;
    case 1:
        if (which > 2 || part(rs1, 5, 59)) { return FAULT_WORD; }
        m->load_strides[which] = (int64_t)rs2;
        return FAULT_NONE;
    case 2:
        if (part(rs1, 2, 62)) { return FAULT_WORD; }
        m->store_stride = (int64_t)rs2;
        return FAULT_NONE;
    default: return FAULT_WORD;
    }
}

static int64_t move(model_t *m, int funct, uint64_t rs1, uint64_t rs2, int64_t word) {
    command_t c = {.queue = funct == MVOUT ? STORE : LOAD, .word = word, .address = (int64_t)rs1};
    int64_t local = part(rs2, 0, 32), from = part(local, 0, 29), flags = part(local, 29, 3);
    c.rows = part(rs2, 48, 16), c.stride = funct == MVOUT ? m->store_stride : m->load_strides[funct == MVIN2];
    c.row = funct == MVOUT ? SPAD + from : from;
    if (part(rs2, 32, 16) != DIM || c.rows < 1 || c.rows > DIM) { return fault(m, FAULT_WORD, c.rows); }
    if (flags != (funct == MVOUT ? 5 : 0)) { return fault(m, FAULT_WORD, local); }
    if (funct != MVOUT && from + c.rows > SPAD) { return fault(m, FAULT_ADDRESS, from); }
    int64_t row = funct == MVOUT ? DIM * 4 : DIM;
    if (c.address < 0 || c.stride < 0 || c.address + (c.rows - 1) * c.stride + row > m->size) {
        return fault(m, FAULT_OUTSIDE, c.address);
    }
    return give(m, c);
}

static int64_t compute(model_t *m, uint64_t rs1, uint64_t rs2, int64_t word) {
    uint64_t b = m->preload[0], c = m->preload[1];
    if (!m->is_preloaded || (uint32_t)rs2 != NONE) { return fault(m, FAULT_WORD, 0); }
    command_t made = {.queue = EXECUTE, .word = word, .rows = part(rs1, 48, 16), .a_stride = m->a_stride,
                      .c_stride = m->c_stride, .adds = (int)part(c, 30, 1)};
    made.a = (uint32_t)rs1 == NONE ? NO_ROW : part(rs1, 0, 32), made.b = (uint32_t)b == NONE ? NO_ROW : part(b, 0, 32);
    made.c = SPAD + part(c, 0, 29);
    int sizes = part(rs1, 32, 16) == DIM && part(b, 32, 16) == DIM && part(b, 48, 16) == DIM &&
                part(c, 32, 16) == DIM && part(c, 48, 16) == made.rows && made.rows >= 1 && made.rows <= DIM;
    if (!sizes || !part(c, 31, 1) || part(c, 29, 1) || (made.a == NO_ROW) != (made.b == NO_ROW)) {
        return fault(m, FAULT_WORD, made.rows);
    }
    int64_t last = made.a + (made.rows - 1) * made.a_stride;
    if (made.a != NO_ROW && (last >= SPAD || made.b + DIM > SPAD)) { return fault(m, FAULT_ADDRESS, last); }
    m->is_preloaded = 0;
    return give(m, made);
}

/* Read the trace: registers now, commands later. */
static int64_t fetch(model_t *m, const uint8_t *stream, int64_t bytes) {
    for (int64_t word = 0; word * WORD + WORD <= bytes; ++word) {
        const uint8_t *w = stream + word * WORD;
        uint64_t rs1 = number(w + 1), rs2 = number(w + 9);
        int64_t wrong = FAULT_NONE;
        m->report[1] = word;
        switch (w[0]) {
        case END: return FAULT_NONE;
        case CONFIG: wrong = configure(m, rs1, rs2); break;
        case MVIN:
        case MVIN2:
        case MVOUT: wrong = move(m, w[0], rs1, rs2, word); break;
        case PRELOAD: m->preload[0] = rs1, m->preload[1] = rs2, m->is_preloaded = 1; break;
        case COMPUTE: wrong = compute(m, rs1, rs2, word); break;
        default: wrong = fault(m, FAULT_WORD, w[0]);
        }
        if (wrong) { return wrong; }
    }
    return fault(m, FAULT_WORD, -1);
}

/* ---- commands */

static int64_t copy(model_t *m, const command_t *c) {
    for (int64_t i = 0; i < c->rows; ++i) {
        uint8_t *outside = m->region + c->address + i * c->stride;
        int64_t row = c->row + i;
        if (c->queue == LOAD) {
            memcpy(m->spad[row], outside, DIM), m->filled[row] = 1;
        } else if (!m->filled[row]) {
            return fault(m, FAULT_POISON, row);
        } else {
            memcpy(outside, m->acc[row - SPAD], DIM * 4);
        }
    }
    return FAULT_NONE;
}

static int64_t multiply(model_t *m, const command_t *c) {
    for (int k = 0; c->b != NO_ROW && k < DIM; ++k) {
        if (!m->filled[c->b + k]) { return fault(m, FAULT_POISON, c->b + k); }
    }
    for (int64_t i = 0; i < c->rows; ++i) {
        int64_t a = c->a + i * c->a_stride, row = c->c + i * c->c_stride;
        if ((c->a != NO_ROW && !m->filled[a]) || (c->adds && !m->filled[row])) { return fault(m, FAULT_POISON, row); }
        int32_t *sums = m->acc[row - SPAD];
        if (!c->adds) { memset(sums, 0, DIM * 4); }
        for (int k = 0; c->b != NO_ROW && k < DIM; ++k) {
            for (int j = 0; j < DIM; ++j) {
                sums[j] = (int32_t)((uint32_t)sums[j] + (uint32_t)(m->spad[a][k] * m->spad[c->b + k][j]));
            }
        }
        m->filled[row] = 1;
    }
    return FAULT_NONE;
}

/* When the next command of a queue can begin, or -1. */
static int64_t ready_at(const model_t *m, int queue) {
    if (m->done[queue] == m->given[queue]) { return -1; }
    const command_t *c = &m->commands[m->queues[queue][m->done[queue]]];
    int64_t at = m->free[queue];
    for (int q = 0; q < QUEUES; ++q) {
        if (c->needs[q] > m->done[q]) { return -1; }
        int64_t end = c->needs[q] ? m->commands[m->queues[q][c->needs[q] - 1]].end : 0;
        at = end > at ? end : at;
    }
    return at;
}

static int64_t step(model_t *m, int queue, int64_t begin) {
    command_t *c = &m->commands[m->queues[queue][m->done[queue]++]];
    m->report[1] = c->word, m->report[3] = queue;
    if (queue == EXECUTE) {
        m->free[queue] = c->end = begin + c->rows + DIM;
        return multiply(m, c);
    }
    int64_t bytes = c->rows * (queue == STORE ? DIM * 4 : DIM), end = begin + LATENCY;
    m->bus = (end > m->bus ? end : m->bus) + (bytes + m->bus_bytes - 1) / m->bus_bytes;
    m->free[queue] = c->end = m->bus;
    return copy(m, c);
}

static int64_t run_all(model_t *m) {
    for (;;) {
        int64_t first = -1;
        int chosen = -1;
        for (int queue = 0; queue < QUEUES; ++queue) {
            int64_t at = ready_at(m, queue);
            if (at >= 0 && (first < 0 || at < first)) { first = at, chosen = queue; }
        }
        if (chosen < 0) { break; }
        int64_t wrong = step(m, chosen, first);
        if (wrong) { return wrong; }
    }
    for (int queue = 0; queue < QUEUES; ++queue) {
        if (m->done[queue] < m->given[queue]) { return fault(m, FAULT_DEADLOCK, queue); }
        if (m->free[queue] > m->report[0]) { m->report[0] = m->free[queue]; }
    }
    return FAULT_NONE;
}

int64_t gemmini_run(const int64_t *config, const uint8_t *stream, int64_t bytes, uint8_t *region, int64_t size,
                    int64_t *report) {
    int64_t words = bytes / WORD + 1, status = FAULT_MEMORY;
    memset(report, 0, 4 * sizeof *report);
    model_t *m = calloc(1, sizeof *m);
    if (!m) { return status; }
    m->region = region, m->size = size, m->bus_bytes = config[1], m->report = report;
    m->commands = malloc((size_t)words * sizeof *m->commands);
    int64_t *places = malloc((size_t)words * QUEUES * sizeof *places);
    for (int q = 0; places && q < QUEUES; ++q) { m->queues[q] = places + q * words; }
    if (m->commands && places) { status = fetch(m, stream, bytes); }
    if (!status) { status = run_all(m); }
    free(m->commands), free(places), free(m);
    return status;
}
