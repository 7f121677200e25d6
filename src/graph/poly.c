/* Polynomial arithmetic for dims.c: pure, on the stack, bounded. */
#include "graph/poly.h"

#include <string.h>

/* Order of terms: higher degree first, then by factors, so that a number comes last. */
static int compare_terms(const heed_term *a, const heed_term *b)
{
    if (a->degree != b->degree) return b->degree - a->degree;
    for (int i = 0; i < a->degree; i++)
        if (a->factors[i] != b->factors[i]) return a->factors[i] < b->factors[i] ? -1 : 1;
    return 0;
}

void heed_poly_number(heed_poly *out, int64_t number)
{
    memset(out, 0, sizeof *out);
    if (number) out->n = 1, out->terms[0].coef = number;
}

void heed_poly_atom(heed_poly *out, int atom)
{
    heed_poly_number(out, 1);
    out->terms[0].degree = 1;
    out->terms[0].factors[0] = atom;
}

int heed_poly_is_number(const heed_poly *p, int64_t *number)
{
    if (p->n > 1 || (p->n == 1 && p->terms[0].degree)) return 0;
    *number = p->n ? p->terms[0].coef : 0;
    return 1;
}

int heed_poly_equal(const heed_poly *a, const heed_poly *b)
{
    if (a->n != b->n) return 0;
    for (int i = 0; i < a->n; i++)
        if (a->terms[i].coef != b->terms[i].coef || compare_terms(&a->terms[i], &b->terms[i])) return 0;
    return 1;
}

/* p += term */
static int add_term(heed_poly *p, const heed_term *term)
{
    int at = 0, order = 1;
    while (at < p->n && (order = compare_terms(&p->terms[at], term)) < 0) at++;
    if (at < p->n && order == 0) {
        if (__builtin_add_overflow(p->terms[at].coef, term->coef, &p->terms[at].coef)) return 0;
        if (p->terms[at].coef) return 1;
        p->n--;
        memmove(&p->terms[at], &p->terms[at + 1], (size_t) (p->n - at) * sizeof *term);
        return 1;
    }
    if (term->coef == 0) return 1;
    if (p->n == HEED_POLY_TERMS) return 0;
    memmove(&p->terms[at + 1], &p->terms[at], (size_t) (p->n - at) * sizeof *term);
    p->terms[at] = *term;
    p->n++;
    return 1;
}

static int mul_terms(heed_term *out, const heed_term *a, const heed_term *b)
{
    heed_term product = { .degree = a->degree + b->degree };
    if (product.degree > HEED_POLY_DEGREE || __builtin_mul_overflow(a->coef, b->coef, &product.coef)) return 0;
    for (int i = 0, j = 0, n = 0; n < product.degree; n++) {
        int from_a = j == b->degree || (i < a->degree && a->factors[i] <= b->factors[j]);
        product.factors[n] = from_a ? a->factors[i++] : b->factors[j++];
    }
    *out = product;
    return 1;
}

/* a / b if b divides a. */
static int div_terms(heed_term *out, const heed_term *a, const heed_term *b)
{
    heed_term quotient = { 0 };
    if (b->coef == -1 ? __builtin_sub_overflow((int64_t) 0, a->coef, &quotient.coef) : a->coef % b->coef != 0) return 0;
    if (b->coef != -1) quotient.coef = a->coef / b->coef;
    int j = 0;
    for (int i = 0; i < a->degree; i++) {
        if (j < b->degree && a->factors[i] == b->factors[j]) j++;
        else quotient.factors[quotient.degree++] = a->factors[i];
    }
    if (j < b->degree) return 0;
    *out = quotient;
    return 1;
}

int heed_poly_add(heed_poly *out, const heed_poly *a, const heed_poly *b, int64_t times_b)
{
    heed_poly sum = *a;
    for (int i = 0; i < b->n; i++) {
        heed_term term = b->terms[i];
        if (__builtin_mul_overflow(term.coef, times_b, &term.coef) || !add_term(&sum, &term)) return 0;
    }
    *out = sum;
    return 1;
}

int heed_poly_mul(heed_poly *out, const heed_poly *a, const heed_poly *b)
{
    heed_poly product = { 0 };
    for (int i = 0; i < a->n; i++) {
        for (int j = 0; j < b->n; j++) {
            heed_term term;
            if (!mul_terms(&term, &a->terms[i], &b->terms[j]) || !add_term(&product, &term)) return 0;
        }
    }
    *out = product;
    return 1;
}

/* Long division. The order of terms is one that products respect, so the first term of the rest must be a multiple of b's
 * first. */
int heed_poly_div_exact(heed_poly *out, const heed_poly *a, const heed_poly *b)
{
    heed_poly rest = *a, quotient = { 0 };
    while (rest.n) {
        heed_poly part = { .n = 1 }, product;
        if (!div_terms(&part.terms[0], &rest.terms[0], &b->terms[0])) return 0;
        if (!add_term(&quotient, &part.terms[0])) return 0;
        if (!heed_poly_mul(&product, &part, b) || !heed_poly_add(&rest, &rest, &product, -1)) return 0;
    }
    *out = quotient;
    return 1;
}

static uint64_t magnitude(int64_t x)
{
    return x < 0 ? 0 - (uint64_t) x : (uint64_t) x;
}

static uint64_t gcd(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* Keep in `common` what also divides every term of p. */
static void narrow(heed_term *common, const heed_poly *p)
{
    for (int t = 0; t < p->n; t++) {
        const heed_term *term = &p->terms[t];
        common->coef = (int64_t) gcd(magnitude(common->coef), magnitude(term->coef));
        heed_term shared = { .coef = common->coef };
        for (int i = 0, j = 0; i < common->degree && j < term->degree;) {
            int x = common->factors[i], y = term->factors[j];
            if (x == y) shared.factors[shared.degree++] = x;
            i += x <= y, j += y <= x;
        }
        *common = shared;
    }
}

void heed_poly_reduce(heed_poly *a, heed_poly *b)
{
    if (!a->n || !b->n) return;
    heed_term common = a->terms[0];
    if (common.coef == INT64_MIN) return; /* has no magnitude */
    narrow(&common, a);
    narrow(&common, b);
    for (int i = 0; i < a->n; i++) div_terms(&a->terms[i], &a->terms[i], &common);
    for (int i = 0; i < b->n; i++) div_terms(&b->terms[i], &b->terms[i], &common);
}
