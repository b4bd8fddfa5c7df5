#include "module.h"

#define MAX_STEPS 1024
#define MAX_DEPTH 32
enum { F_ADD, F_SUB, F_MUL, F_FLOORDIV, F_MOD, F_MIN, F_MAX, F_EQ, F_NE, F_LT, F_LE, F_AND, F_OR,
       F_NEG, F_NOT, F_OPERATORS };

int inlay_add(int64_t a, int64_t b, int64_t *sum)
{
    if (b > 0 ? a > INT64_MAX - b : a < INT64_MIN - b) return 0;
    *sum = a + b;
    return 1;
}

int inlay_subtract(int64_t a, int64_t b, int64_t *difference)
{
    if (b < 0 ? a > INT64_MAX + b : a < INT64_MIN + b) return 0;
    *difference = a - b;
    return 1;
}

int inlay_multiply(int64_t a, int64_t b, int64_t *product)
{
    /* Half-width factors cannot overflow: the usual case, without a division. */
    if (a == (int32_t)a && b == (int32_t)b) {
        *product = a * b;
        return 1;
    }
    if (a == 0 || b == 0) {
        *product = 0;
        return 1;
    }
    if (a == -1 || b == -1) {
        int64_t other = a == -1 ? b : a;
        if (other == INT64_MIN) return 0;
        *product = -other;
        return 1;
    }
    if ((a > 0) == (b > 0) ? (a > 0 ? a > INT64_MAX / b : a < INT64_MAX / b)
                           : (a > 0 ? b < INT64_MIN / a : a < INT64_MIN / b))
        return 0;
    *product = a * b;
    return 1;
}

int inlay_floor_divide(int64_t a, int64_t b, int64_t *quotient)
{
    if (b == -1) return inlay_subtract(0, a, quotient);
    *quotient = a / b - (a % b != 0 && (a % b < 0) != (b < 0));
    return 1;
}

int64_t inlay_modulo(int64_t a, int64_t b)
{
    int64_t rest;
    if (b == -1) return 0;
    rest = a % b;
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

int inlay_formula_check(inlay_formula_t formula, uint32_t arity)
{
    uint32_t depth = 0, step;
    const uint32_t *at = formula.words;
    if (formula.steps > MAX_STEPS) return 0;
    for (step = 0; step < formula.steps; step++) {
        uint32_t code = *at++;
        if (code == 0) {
            at += 2;
            depth++;
        } else if (code == 1) {
            if (*at++ >= arity) return 0;
            depth++;
        } else {
            uint32_t operands = code - 2 >= F_NEG ? 1 : 2;
            if (code - 2 >= F_OPERATORS || depth < operands) return 0;
            depth -= operands - 1;
        }
        if (depth > MAX_DEPTH) return 0;
    }
    return depth == 1;
}

static int apply(uint32_t code, int64_t a, int64_t b, int64_t *value)
{
    switch (code) {
    case F_ADD: return inlay_add(a, b, value);
    case F_SUB: return inlay_subtract(a, b, value);
    case F_MUL: return inlay_multiply(a, b, value);
    case F_FLOORDIV: return b != 0 && inlay_floor_divide(a, b, value);
    case F_MOD:
        if (b == 0) return 0;
        *value = inlay_modulo(a, b);
        return 1;
    case F_MIN: *value = a < b ? a : b; return 1;
    case F_MAX: *value = a > b ? a : b; return 1;
    case F_EQ: *value = a == b; return 1;
    case F_NE: *value = a != b; return 1;
    case F_LT: *value = a < b; return 1;
    case F_LE: *value = a <= b; return 1;
    case F_AND: *value = a != 0 && b != 0; return 1;
    case F_OR: *value = a != 0 || b != 0; return 1;
    case F_NEG: return inlay_subtract(0, b, value);
    default: *value = b == 0; return 1; /* F_NOT */
    }
}

int inlay_formula_value(inlay_formula_t formula, const int64_t *arguments, int64_t *value)
{
    int64_t stack[MAX_DEPTH];
    uint32_t depth = 0, step;
    const uint32_t *at = formula.words;
    for (step = 0; step < formula.steps; step++) {
        uint32_t code = *at++;
        if (code == 0) {
            stack[depth++] = (int64_t)((uint64_t)at[0] | (uint64_t)at[1] << 32);
            at += 2;
        } else if (code == 1) {
            stack[depth++] = arguments[*at++];
        } else {
            int64_t b = stack[--depth], a = 0;
            if (code - 2 < F_NEG) a = stack[--depth];
            if (!apply(code - 2, a, b, &stack[depth])) return 0;
            depth++;
        }
    }
    *value = stack[0];
    return 1;
}
