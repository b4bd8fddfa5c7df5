/* The opcode table as C: an enumeration and rows for the verifier. */
#ifndef INLAY_OPCODES_H
#define INLAY_OPCODES_H

#include <stdint.h>

enum {
#define INLAY_OP(name, number, operands, popped, pushed) OP_##name = number,
#include "opcodes.inc"
#undef INLAY_OP
    INLAY_OPS
};

typedef struct inlay_op {
    const char *operands, *popped, *pushed;
} inlay_op_t;

extern const inlay_op_t inlay_ops[INLAY_OPS];

#endif
