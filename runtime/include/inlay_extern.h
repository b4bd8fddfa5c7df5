/* Operators in C: what `inlay.extern(..., c=...)` puts behind an operator.
 *
 *     #include "inlay_extern.h"
 *
 *     int32_t scale_rows(const inlay_call_t *call)
 *     {
 *         const float *x = call->inputs[0].data, *factors = call->inputs[1].data;
 *         float *y = call->outputs[0].data;
 *         int64_t rows = call->inputs[0].dims[0], columns = call->inputs[0].dims[1], i, k;
 *         for (i = 0; i < rows; i++)
 *             for (k = 0; k < columns; k++) y[i * columns + k] = x[i * columns + k] * factors[i];
 *         return 0;
 *     }
 *
 * Tensors are dense and row-major. Dims, ranks and element types are those that the type rule of the
 * operator gives, so a function need not check them. Nothing may be assumed of the alignment of an
 * input beyond that of its elements, and nothing of what an output holds before it is written.
 *
 * A function may be called by several threads at once. It must not write inputs, must write every
 * element of the outputs, and must not keep a pointer to either.
 */
#ifndef INLAY_EXTERN_H
#define INLAY_EXTERN_H

#include "inlay_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One call of an operator.
 *
 * Attributes are inputs too: they follow the operands in the order in which the extern declares
 * them. A `bool` is a BOOL, an `int` an I64, a `float` an F64, each of rank 0; a tuple of these has
 * rank 1; a `str` is a vector of U8, its UTF-8 without an end. */
typedef struct inlay_call {
    const inlay_tensor_t *inputs;
    const inlay_tensor_t *outputs;
    uint32_t n_inputs, n_outputs;
    char *message;        /* where a function that fails may say why, with a zero at the end */
    size_t message_bytes; /* room there, the zero included */
} inlay_call_t;

/* Returns 0, or another number when it failed: the run ends with that number and the message. */
typedef int32_t (*inlay_extern_t)(const inlay_call_t *call);

#ifdef __cplusplus
}
#endif
#endif
