/* A model of the accelerator `lstm_engine`: what its command computes, as a C function that returns 0.
 *
 * Each product and each sum is rounded by itself, in the order of the description: the compiler may not
 * contract them (`-ffp-contract=off`).
 */

#include <stdint.h>

typedef struct {
    float *y, *h, *c;                 /* [steps, batch, size], [batch, size] */
    float *gates;                     /* [batch, 4 * size] */
    const float *x, *w, *b;           /* [steps, batch, inputs], [inputs, 4 * size], [4 * size] */
    const float *r, *br;              /* [size, 4 * size], [4 * size] */
    float low, high;                  /* of the cell */
    int64_t batch, inputs, size;
    int64_t into, forget, fresh, out; /* which quarter of the columns a gate is */
} lstm_engine_layer_t;

int64_t lstm_engine_layer(float *y, float *h, float *c, float *gates, const float *x, const float *w,
                          const float *b, const float *r, const float *br, const float *h0, const float *c0, const float *low,
                          const float *high, int64_t steps, int64_t batch, int64_t inputs, int64_t size,
                          int64_t backward, int64_t into, int64_t forget, int64_t fresh, int64_t out);

static float tanh_of(float x) {
    static const float odd[] = {-2.76076847742355e-16f, 2.00018790482477e-13f, -8.60467152213735e-11f,
                                5.12229709037114e-08f,  1.48572235717979e-05f, 6.37261928875436e-04f,
                                4.89352455891786e-03f};
    static const float even[] = {1.19825839466702e-06f, 1.18534705686654e-04f, 2.26843463243900e-03f,
                                 4.89352518554385e-03f};
    const float most = 7.90531110763549805f;
    x = x > -most ? x : -most;
    x = x < most ? x : most;
    float square = x * x, over = odd[0], under = even[0];
    for (int i = 1; i < 7; ++i) { over = square * over + odd[i]; }
    for (int i = 1; i < 4; ++i) { under = square * under + even[i]; }
    return x * over / under;
}

static float sigmoid_of(float x) { return tanh_of(x * 0.5f) * 0.5f + 0.5f; }

/* The sums of all gates for row `at`, from the state before it. */
static void sum_gates(const lstm_engine_layer_t *l, int64_t at) {
    int64_t columns = 4 * l->size;
    for (int64_t n = 0; n < l->batch; ++n) {
        float *gates = l->gates + n * columns;
        for (int64_t g = 0; g < columns; ++g) { gates[g] = l->b[g]; }
        for (int64_t i = 0; i < l->inputs; ++i) {
            float x = l->x[(at * l->batch + n) * l->inputs + i];
            for (int64_t g = 0; g < columns; ++g) { gates[g] += x * l->w[i * columns + g]; }
        }
        for (int64_t k = 0; k < l->size; ++k) {
            float h = l->h[n * l->size + k];
            for (int64_t g = 0; g < columns; ++g) { gates[g] += h * l->r[k * columns + g]; }
        }
        for (int64_t g = 0; g < columns; ++g) { gates[g] += l->br[g]; }
    }
}

/* The states after row `at`, from the gates. */
static void move_states(const lstm_engine_layer_t *l, int64_t at) {
    for (int64_t n = 0; n < l->batch; ++n) {
        const float *gates = l->gates + n * 4 * l->size;
        for (int64_t j = 0; j < l->size; ++j) {
            int64_t here = n * l->size + j;
            float kept = sigmoid_of(gates[l->forget * l->size + j]) * l->c[here];
            float made = sigmoid_of(gates[l->into * l->size + j]) * tanh_of(gates[l->fresh * l->size + j]);
            float cell = kept + made;
            cell = cell > l->low ? cell : l->low;
            cell = cell < l->high ? cell : l->high;
            l->c[here] = cell;
            l->h[here] = sigmoid_of(gates[l->out * l->size + j]) * tanh_of(cell);
            l->y[at * l->batch * l->size + here] = l->h[here];
        }
    }
}

int64_t lstm_engine_layer(float *y, float *h, float *c, float *gates, const float *x, const float *w,
                          const float *b, const float *r, const float *br, const float *h0, const float *c0, const float *low,
                          const float *high, int64_t steps, int64_t batch, int64_t inputs, int64_t size,
                          int64_t backward, int64_t into, int64_t forget, int64_t fresh, int64_t out) {
    lstm_engine_layer_t l = {y,     h,      c,    gates, x, w, b, r, br,
                             *low,  *high,  batch, inputs, size, into, forget, fresh, out};
    for (int64_t i = 0; i < batch * size; ++i) {
        h[i] = h0[i];
        c[i] = c0[i];
    }
    for (int64_t t = 0; t < steps; ++t) {
        int64_t at = backward ? steps - 1 - t : t;
        sum_gates(&l, at);
        move_states(&l, at);
    }
    return 0;
}
