/* graph/poly.h - polynomials with whole coefficients, the normal form of dimension expressions (graph/dims.h).
 *
 * A polynomial is a sum of terms coef * factor * factor ..., factors being numbers of atoms. It is kept in one order (terms
 * by degree, then by factors; no two terms alike, no coefficient 0), so that equal polynomials are equal in memory. Size is
 * bounded: an operation whose result does not fit, or overflows, says so and leaves nothing behind.
 */
#ifndef HEED_GRAPH_POLY_H
#define HEED_GRAPH_POLY_H

#include <stdint.h>

#define HEED_POLY_TERMS 16
#define HEED_POLY_DEGREE 8

typedef struct heed_term {
    int64_t coef;
    int degree;
    int factors[HEED_POLY_DEGREE]; /* ascending; unused ones 0 */
} heed_term;

typedef struct heed_poly {
    int n;
    heed_term terms[HEED_POLY_TERMS];
} heed_poly;

void heed_poly_number(heed_poly *out, int64_t number);
void heed_poly_atom(heed_poly *out, int atom);
/* 1 and *number if there is nothing but a number. */
int heed_poly_is_number(const heed_poly *p, int64_t *number);
int heed_poly_equal(const heed_poly *a, const heed_poly *b);

/* Each returns 0 where the result does not fit. out may be an operand. */
int heed_poly_add(heed_poly *out, const heed_poly *a, const heed_poly *b, int64_t times_b); /* a + times_b * b */
int heed_poly_mul(heed_poly *out, const heed_poly *a, const heed_poly *b);
/* The quotient if a is a multiple of b, whatever the atoms stand for. b is not 0. */
int heed_poly_div_exact(heed_poly *out, const heed_poly *a, const heed_poly *b);
/* Divide both by the largest number and product of atoms that divides every term of both. */
void heed_poly_reduce(heed_poly *a, heed_poly *b);

#endif
