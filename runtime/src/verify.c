/* Static checks, after which the dispatch loop trusts its code. verify.py explains them; this is
 * the same single pass, driven by the same table. */
#include "module.h"
#include "opcodes.h"

#include <string.h>

#define MAX_COUNT 0xffffu
#define MAX_ALIGN (1u << 21)
#define MAX_WAITING ((size_t)1 << 26)

enum { IS_START = 1, IS_HEADER = 2 };

typedef struct state {
    uint32_t depth;
    uint8_t kinds[];
} state_t;

typedef struct checker {
    const inlay_module_t *module;
    const inlay_function_t *function;
    inlay_error_t *error;
    uint8_t *marks;   /* for each word */
    state_t **states; /* for each word: what arrives there, until it is visited */
    uint8_t *stack;   /* kinds, as many as the frame has slots */
    size_t waiting;   /* slots of all states */
    uint32_t depth, pc;
    int reachable;
} checker_t;

static inlay_status_t wrong(checker_t *c, const char *what)
{
    inlay_fail(c->error, INLAY_BYTECODE, "the program in the file is wrong: function '", NULL, 0);
    inlay_say_text(c->error, c->function->name);
    inlay_say(c->error, "' at word ");
    inlay_say_int(c->error, c->pc);
    inlay_say(c->error, ": ");
    inlay_say(c->error, what);
    return INLAY_BYTECODE;
}

static void *allocate(checker_t *c, size_t bytes)
{
    const inlay_host_t *host = c->module->host;
    void *memory = host->allocate(host->user, bytes ? bytes : 1, 64);
    if (!memory) inlay_fail(c->error, INLAY_OUT_OF_MEMORY, "no memory to verify code", NULL, 0);
    return memory;
}

static void release(checker_t *c, void *memory, size_t bytes)
{
    if (memory) c->module->host->release(c->module->host->user, memory, bytes ? bytes : 1, 64);
}

/* ---------------------------------------------------------------------------------- states */

/* Remember what is known here for a target. */
static inlay_status_t keep(checker_t *c, uint32_t target)
{
    state_t *state;
    c->waiting += c->depth;
    if (c->waiting > MAX_WAITING)
        return wrong(c, "too many jumps wait for their targets with too deep a stack");
    state = allocate(c, sizeof *state + c->depth);
    if (!state) return INLAY_OUT_OF_MEMORY;
    state->depth = c->depth;
    memcpy(state->kinds, c->stack, c->depth);
    c->states[target] = state;
    return INLAY_OK;
}

/* Compare with the stack; with `widen`, note what only one of them knows. */
static inlay_status_t join(checker_t *c, state_t *state, int widen)
{
    uint32_t i;
    if (state->depth != c->depth) return wrong(c, "two ways meet with different depths");
    if (memcmp(state->kinds, c->stack, c->depth) == 0) return INLAY_OK;
    for (i = 0; i < c->depth; i++) {
        uint8_t a = state->kinds[i], b = c->stack[i];
        if (a == b) continue;
        if (a == KIND_EMPTY || b == KIND_EMPTY || (a != KIND_ANY && b != KIND_ANY))
            return wrong(c, "two ways meet with different kinds in a slot");
        if (widen) state->kinds[i] = KIND_ANY;
    }
    return INLAY_OK;
}

static inlay_status_t jump(checker_t *c, uint32_t target)
{
    if (c->states[target]) return join(c, c->states[target], target > c->pc);
    return keep(c, target);
}

static inlay_status_t arrive(checker_t *c)
{
    state_t *waiting = c->states[c->pc];
    if (waiting) {
        if (c->reachable) INLAY_TRY(join(c, waiting, 1));
        c->depth = waiting->depth;
        memcpy(c->stack, waiting->kinds, waiting->depth);
        if (!(c->marks[c->pc] & IS_HEADER)) {
            c->waiting -= waiting->depth;
            release(c, waiting, sizeof *waiting + waiting->depth);
            c->states[c->pc] = NULL;
        }
    } else if (!c->reachable) {
        return wrong(c, "control never comes here");
    } else if (c->marks[c->pc] & IS_HEADER) {
        INLAY_TRY(keep(c, c->pc));
    }
    c->reachable = 1;
    return INLAY_OK;
}

/* --------------------------------------------------------------------------------- effects */

static uint8_t kind_of_letter(char letter)
{
    switch (letter) {
    case 'I': return KIND_INT;
    case 'T': return KIND_TENSOR;
    case 'S': return KIND_STORAGE;
    case 'U': return KIND_TUPLE;
    case 'A': return KIND_ADT;
    case 'C': return KIND_CLOSURE;
    case 'L': return KIND_CELL;
    default: return KIND_ANY;
    }
}

/* How many slots an item stands for, and for '*' which kinds. */
static uint32_t times(const checker_t *c, char letter, const uint32_t *operands,
                      const uint32_t **kinds)
{
    switch (letter) {
    case 'a': case 'b': case 'c': return operands[letter - 'a'];
    case 'P':
        *kinds = c->module->functions[operands[0]].params;
        return c->module->functions[operands[0]].n_params;
    case 'R':
        *kinds = c->module->functions[operands[0]].results;
        return c->module->functions[operands[0]].n_results;
    case 'T': return c->module->kernels[operands[0]].n_ports;
    case 'N': return c->module->kernels[operands[0]].n_ints;
    default: return 1;
    }
}

/* Hold the top n slots against kinds, given one by one or one for all. */
static inlay_status_t match(checker_t *c, uint32_t n, const uint32_t *kinds, uint8_t kind)
{
    uint32_t i;
    if (n > c->depth) return wrong(c, "pops more slots than there are");
    for (i = 0; i < n; i++) {
        uint8_t found = c->stack[c->depth - n + i];
        uint8_t want = kinds ? (uint8_t)kinds[i] : kind;
        if (found == KIND_EMPTY || (found != want && found != KIND_ANY && want != KIND_ANY))
            return wrong(c, "an operand has another kind");
    }
    return INLAY_OK;
}

static inlay_status_t pop(checker_t *c, uint32_t n, const uint32_t *kinds, uint8_t kind)
{
    INLAY_TRY(match(c, n, kinds, kind));
    c->depth -= n;
    return INLAY_OK;
}

static inlay_status_t push(checker_t *c, uint32_t n, const uint32_t *kinds, uint8_t kind)
{
    uint32_t i;
    if (n > c->function->frame - c->depth) return wrong(c, "needs more slots than its frame has");
    for (i = 0; i < n; i++) c->stack[c->depth++] = kinds ? (uint8_t)kinds[i] : kind;
    return INLAY_OK;
}

static inlay_status_t same_results(checker_t *c, const inlay_function_t *callee)
{
    uint32_t i;
    if (callee->n_results != c->function->n_results)
        return wrong(c, "a tail call returns other results than its caller");
    for (i = 0; i < callee->n_results; i++) {
        uint32_t a = callee->results[i], b = c->function->results[i];
        if (a != b && a != KIND_ANY && b != KIND_ANY)
            return wrong(c, "a tail call returns other results than its caller");
    }
    return INLAY_OK;
}

/* Arrive at the target with the results; what is between must arrive with the same. */
static inlay_status_t evaluate(checker_t *c, uint32_t target, const inlay_shape_t *shape)
{
    uint32_t i, depth = c->depth;
    if (target <= c->pc) return wrong(c, "native shape code goes back");
    for (i = 0; i < shape->n_inputs; i++)
        if (shape->inputs[2 * i] >= depth) return wrong(c, "native shape code takes no slot in use");
    INLAY_TRY(push(c, shape->n_results, NULL, KIND_INT));
    INLAY_TRY(jump(c, target));
    c->depth = depth;
    return INLAY_OK;
}

static inlay_status_t special(checker_t *c, uint32_t op, const uint32_t *operands)
{
    const inlay_function_t *callee;
    uint8_t kind;
    switch (op) {
    case OP_COPY: case OP_MOVE: case OP_DROP:
        kind = c->stack[operands[0]];
        if (kind == KIND_EMPTY) return wrong(c, "reads an empty slot");
        if (op != OP_COPY) c->stack[operands[0]] = KIND_EMPTY;
        return op == OP_DROP ? INLAY_OK : push(c, 1, NULL, kind);
    case OP_POP:
        if (operands[0] > c->depth) return wrong(c, "pops more slots than there are");
        c->depth -= operands[0];
        return INLAY_OK;
    case OP_SLIDE:
        if (operands[0] > c->depth || operands[1] > c->depth - operands[0])
            return wrong(c, "slides more slots than there are");
        memmove(c->stack + c->depth - operands[0] - operands[1], c->stack + c->depth - operands[0],
                operands[0]);
        c->depth -= operands[1];
        return INLAY_OK;
    case OP_EVAL: return evaluate(c, operands[0], &c->module->shapes[operands[1]]);
    case OP_TAIL_CALL:
        callee = &c->module->functions[operands[0]];
        INLAY_TRY(pop(c, callee->n_params, callee->params, 0));
        return same_results(c, callee);
    case OP_TAIL_CALL_CLOSURE:
        INLAY_TRY(pop(c, operands[0], NULL, KIND_ANY));
        return pop(c, 1, NULL, KIND_CLOSURE);
    default: /* OP_RETURN */
        return pop(c, c->function->n_results, c->function->results, 0);
    }
}

/* What an instruction does is in the type of its function. */
static inlay_status_t check_effects(checker_t *c, uint32_t op, const uint32_t *operands)
{
    uint32_t found = 0;
    switch (op) {
    case OP_CALL: case OP_TAIL_CALL: case OP_SPAWN: case OP_CLOSURE:
        found = c->module->functions[operands[0]].effects;
        break;
    case OP_INVOKE:
        if (c->module->kernels[operands[0]].is_ordered) found = EFFECT_ORDERED;
        break;
    case OP_CELL_NEW: found = EFFECT_CELLS; break;
    default: break;
    }
    if (found & ~c->function->effects)
        return wrong(c, "an instruction has effects that the type of the function does not have");
    return INLAY_OK;
}

static inlay_status_t execute(checker_t *c, const inlay_op_t *row, uint32_t op,
                              const uint32_t *operands, uint32_t n)
{
    const char *at;
    uint32_t i;
    if (row->popped[0] == '!') return special(c, op, operands);
    if (op == OP_CLOSURE) {
        const inlay_function_t *callee = &c->module->functions[operands[0]];
        if (operands[1] > callee->n_params)
            return wrong(c, "a closure captures more values than its function has params");
        INLAY_TRY(match(c, operands[1], callee->params, 0));
    }
    for (at = row->popped + strlen(row->popped); at > row->popped; at -= 2) {
        const uint32_t *kinds = NULL;
        uint32_t count = times(c, at[-1], operands, &kinds);
        INLAY_TRY(pop(c, count, kinds, kind_of_letter(at[-2])));
    }
    if (row->operands[0] == 'j' || row->operands[0] == 'J')
        for (i = 0; i < n; i++) INLAY_TRY(jump(c, operands[i]));
    for (at = row->pushed; *at; at += 2) {
        const uint32_t *kinds = NULL;
        uint32_t count = times(c, at[1], operands, &kinds);
        INLAY_TRY(push(c, count, kinds, kind_of_letter(at[0])));
    }
    return INLAY_OK;
}

/* -------------------------------------------------------------------------------- operands */

/* Least value that an operand may not have; 0 for no limit. */
static uint64_t limit(const checker_t *c, char letter)
{
    const inlay_module_t *m = c->module;
    switch (letter) {
    case 'p': return m->n_pool;
    case 'n': case 'x': return MAX_COUNT + 1;
    case 't': return 1u << 31;
    case 's': return c->depth;
    case 'c': return m->n_constants;
    case 'f': return m->n_functions;
    case 'k': return m->n_kernels;
    case 'e': return m->n_shapes;
    case 'm': return m->n_strings;
    case 'M': return m->n_memories;
    case 'd': return INLAY_DTYPES;
    case 'r': return INLAY_MAX_RANK + 1;
    default: return UINT64_MAX;
    }
}

static inlay_status_t check_operands(checker_t *c, const inlay_op_t *row, const uint32_t *operands)
{
    const char *letter;
    uint32_t i = 0;
    for (letter = row->operands; *letter && *letter != 'J'; letter++, i++) {
        uint32_t value = operands[i];
        if (value >= limit(c, *letter)) return wrong(c, "an operand is out of range");
        if (*letter == 'a' && (value == 0 || (value & (value - 1)) || value > MAX_ALIGN))
            return wrong(c, "an alignment is no power of two");
    }
    return INLAY_OK;
}

/* Operands of the instruction at pc; sets how many. Its length in words is returned, or 0. */
static uint32_t decode(const inlay_function_t *f, uint32_t pc, const uint32_t **operands,
                       uint32_t *n)
{
    uint32_t left = f->code_words - pc - 1;
    const inlay_op_t *row;
    if (f->code[pc] >= INLAY_OPS) return 0;
    row = &inlay_ops[f->code[pc]];
    *operands = f->code + pc + 1;
    if (row->operands[0] == 'J') {
        if (left < 1) return 0;
        *n = f->code[pc + 1];
        *operands += 1;
        return *n >= 1 && *n <= left - 1 ? *n + 2 : 0;
    }
    *n = (uint32_t)strlen(row->operands);
    return *n <= left ? *n + 1 : 0;
}

static inlay_status_t find_targets(checker_t *c)
{
    const inlay_function_t *f = c->function;
    const uint32_t *operands;
    uint32_t n, i, length;
    for (c->pc = 0; c->pc < f->code_words; c->pc += length) {
        length = decode(f, c->pc, &operands, &n);
        if (!length) return wrong(c, "no instruction, or without its operands");
        c->marks[c->pc] = IS_START;
    }
    for (c->pc = 0; c->pc < f->code_words; c->pc += decode(f, c->pc, &operands, &n)) {
        const char *letters = inlay_ops[f->code[c->pc]].operands;
        decode(f, c->pc, &operands, &n);
        if (letters[0] != 'j' && letters[0] != 'J') continue;
        if (letters[0] == 'j') n = 1; /* what follows a target is none */
        for (i = 0; i < n; i++) {
            if (operands[i] >= f->code_words || !(c->marks[operands[i]] & IS_START))
                return wrong(c, "a jump goes to no instruction");
            if (operands[i] <= c->pc) c->marks[operands[i]] |= IS_HEADER;
        }
    }
    return INLAY_OK;
}

static int ends(uint32_t op)
{
    return op == OP_FAIL || op == OP_JUMP || op == OP_SWITCH || op == OP_TAIL_CALL ||
           op == OP_TAIL_CALL_CLOSURE || op == OP_RETURN;
}

static inlay_status_t visit(checker_t *c)
{
    const inlay_function_t *f = c->function;
    const uint32_t *operands;
    uint32_t n, i, length;
    INLAY_TRY(find_targets(c));
    for (i = 0; i < f->n_params; i++) c->stack[i] = (uint8_t)f->params[i];
    c->depth = f->n_params;
    c->reachable = 1;
    for (c->pc = 0; c->pc < f->code_words; c->pc += length) {
        uint32_t op = f->code[c->pc];
        length = decode(f, c->pc, &operands, &n);
        INLAY_TRY(arrive(c));
        INLAY_TRY(check_operands(c, &inlay_ops[op], operands));
        INLAY_TRY(check_effects(c, op, operands));
        INLAY_TRY(execute(c, &inlay_ops[op], op, operands, n));
        c->reachable = !ends(op);
    }
    return c->reachable ? wrong(c, "control runs off the end of the code") : INLAY_OK;
}

static inlay_status_t verify_function(const inlay_module_t *module, const inlay_function_t *f,
                                      inlay_error_t *error)
{
    checker_t c;
    inlay_status_t status = INLAY_OUT_OF_MEMORY;
    uint32_t i;
    memset(&c, 0, sizeof c);
    c.module = module;
    c.function = f;
    c.error = error;
    for (i = 0; i < f->n_spans; i++)
        if (f->spans[2 * i] > f->code_words || f->spans[2 * i + 1] >= module->n_strings ||
            (i && f->spans[2 * i] <= f->spans[2 * i - 2]))
            return wrong(&c, "the span table is not ascending or leaves its tables");
    c.marks = allocate(&c, f->code_words);
    c.states = allocate(&c, f->code_words * sizeof *c.states);
    c.stack = allocate(&c, f->frame);
    if (c.marks && c.states && c.stack) {
        memset(c.marks, 0, f->code_words);
        memset(c.states, 0, f->code_words * sizeof *c.states);
        status = visit(&c);
        for (i = 0; i < f->code_words; i++)
            if (c.states[i]) release(&c, c.states[i], sizeof **c.states + c.states[i]->depth);
    }
    release(&c, c.marks, f->code_words);
    release(&c, c.states, f->code_words * sizeof *c.states);
    release(&c, c.stack, f->frame);
    return status;
}

inlay_status_t inlay_verify(const inlay_module_t *module, inlay_error_t *error)
{
    uint32_t i;
    for (i = 0; i < module->n_functions; i++)
        INLAY_TRY(verify_function(module, &module->functions[i], error));
    return INLAY_OK;
}
