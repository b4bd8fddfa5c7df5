#include "opcodes.h"

const inlay_op_t inlay_ops[INLAY_OPS] = {
#define INLAY_OP(name, number, operands, popped, pushed) [number] = {operands, popped, pushed},
#include "opcodes.inc"
#undef INLAY_OP
};
