/* A model of the accelerator `vanilla`: what its commands compute, as C functions that return 0. */

#include <stdint.h>

typedef struct {
    int64_t channels, height, width; /* of an image */
    int64_t depth, rows, columns;    /* of the weights of one channel of the result */
    int64_t down, right, top, left, outside;
} vanilla_window_t;

int64_t vanilla_convolve(int32_t *y, const int8_t *x, const int8_t *w, const int32_t *b, int64_t n, int64_t c,
                         int64_t h, int64_t width, int64_t k, int64_t d, int64_t p, int64_t q, int64_t r,
                         int64_t s, int64_t groups, int64_t down, int64_t right, int64_t top, int64_t left,
                         int64_t outside);
int64_t vanilla_multiply(int32_t *y, const int8_t *x, const int8_t *w, const int32_t *b, int64_t n, int64_t c,
                         int64_t k);

/* The sum of a window of `image`, whose first row and column are `y0` and `x0`, with `weights`. */
static int32_t window_sum(const int8_t *image, const int8_t *weights, const vanilla_window_t *v, int64_t y0,
                          int64_t x0) {
    int32_t sum = 0;
    for (int64_t c = 0; c < v->depth; ++c) {
        for (int64_t r = 0; r < v->rows; ++r) {
            int64_t y = y0 + r;
            for (int64_t s = 0; s < v->columns; ++s) {
                int64_t x = x0 + s;
                int inside = y >= 0 && y < v->height && x >= 0 && x < v->width;
                int32_t pixel = inside ? image[(c * v->height + y) * v->width + x] : (int32_t)v->outside;
                sum += pixel * weights[(c * v->rows + r) * v->columns + s];
            }
        }
    }
    return sum;
}

int64_t vanilla_convolve(int32_t *y, const int8_t *x, const int8_t *w, const int32_t *b, int64_t n, int64_t c,
                         int64_t h, int64_t width, int64_t k, int64_t d, int64_t p, int64_t q, int64_t r,
                         int64_t s, int64_t groups, int64_t down, int64_t right, int64_t top, int64_t left,
                         int64_t outside) {
    vanilla_window_t v = {c, h, width, d, r, s, down, right, top, left, outside};
    int64_t channels = k / groups; /* of the result, in a group */
    for (int64_t i = 0; i < n; ++i) {
        for (int64_t o = 0; o < k; ++o) {
            const int8_t *image = x + (i * c + o / channels * d) * h * width;
            const int8_t *weights = w + o * d * r * s;
            int32_t *out = y + (i * k + o) * p * q;
            for (int64_t row = 0; row < p; ++row) {
                for (int64_t column = 0; column < q; ++column) {
                    int64_t y0 = row * down - top, x0 = column * right - left;
                    out[row * q + column] = b[o] + window_sum(image, weights, &v, y0, x0);
                }
            }
        }
    }
    return 0;
}

int64_t vanilla_multiply(int32_t *y, const int8_t *x, const int8_t *w, const int32_t *b, int64_t n, int64_t c,
                         int64_t k) {
    for (int64_t i = 0; i < n; ++i) {
        for (int64_t o = 0; o < k; ++o) {
            int32_t sum = b[o];
            for (int64_t t = 0; t < c; ++t) { sum += (int32_t)x[i * c + t] * w[t * k + o]; }
            y[i * k + o] = sum;
        }
    }
    return 0;
}
