/* SHA-256 (FIPS 180-4), for section digests. */
#ifndef INLAY_SHA256_H
#define INLAY_SHA256_H

#include <stddef.h>
#include <stdint.h>

void inlay_sha256(const uint8_t *data, size_t bytes, uint8_t digest[32]);

#endif
