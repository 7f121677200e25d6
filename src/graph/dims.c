/* The table of dimension symbols.
 *
 * Symbol -1 - i is entry i. Entries are of two kinds: atoms (a name, an unknown, an operation that has no better form) and
 * polynomials over atoms, the normal form of sums and products. Every entry is found again by its hash, so the same
 * expression has one number. Atoms remember whether they are certainly not negative, which min, max and rounding ask.
 */
#include "graph/dims.h"

#include <string.h>

#include "base/hash.h"
#include "graph/graph.h"
#include "graph/poly.h"

enum kind { NAMED, FRESH, POLY, ADD, SUB, MUL, DIV, MIN, MAX };

struct entry {
    enum kind kind;
    int not_negative;
    uint64_t hash;
    union {
        const char *name;
        int number; /* of an unknown */
        const heed_poly *poly;
        int64_t operands[2];
    };
};

struct heed_dims {
    heed_arena *arena;
    struct entry *entries;
    int n, capacity;
    int *slots; /* open addressing: entry + 1, or 0; NULL until the first entry */
    int n_slots;
    int n_fresh;
};

heed_dims *heed_dims_create(heed_arena *arena)
{
    heed_dims *dims = HEED_NEW(arena, heed_dims);
    if (dims) dims->arena = arena;
    return dims;
}

/* ---- entries and their hashes ---- */

static uint64_t hash_poly(uint64_t key, const heed_poly *p)
{
    for (const heed_term *t = p->terms; t < p->terms + p->n; t++) {
        key = heed_hash(key, &t->coef, sizeof t->coef);
        key = heed_hash(key, t->factors, (size_t) t->degree * sizeof t->factors[0]);
    }
    return key;
}

static uint64_t hash_entry(const heed_dims *dims, const struct entry *e)
{
    uint64_t key = (uint64_t) (uintptr_t) dims + (uint64_t) e->kind;
    switch (e->kind) {
    case NAMED: return heed_hash(key, e->name, strlen(e->name));
    case FRESH: return heed_hash(key, &e->number, sizeof e->number);
    case POLY: return hash_poly(key, e->poly);
    default: return heed_hash(key, e->operands, sizeof e->operands);
    }
}

static int same_entry(const struct entry *a, const struct entry *b)
{
    if (a->hash != b->hash || a->kind != b->kind) return 0;
    switch (a->kind) {
    case NAMED: return strcmp(a->name, b->name) == 0;
    case FRESH: return a->number == b->number;
    case POLY: return heed_poly_equal(a->poly, b->poly);
    default: return a->operands[0] == b->operands[0] && a->operands[1] == b->operands[1];
    }
}

static int *find_slot(const heed_dims *dims, const struct entry *e)
{
    unsigned mask = (unsigned) dims->n_slots - 1, at = (unsigned) e->hash & mask;
    while (dims->slots[at] && !same_entry(&dims->entries[dims->slots[at] - 1], e)) at = (at + 1) & mask;
    return &dims->slots[at];
}

/* Room for one more entry; slots are at most half full. */
static int make_room(heed_dims *dims)
{
    if (dims->n < dims->capacity) return 1;
    if (dims->capacity >= INT32_MAX / 8) return 0;
    int capacity = dims->capacity ? dims->capacity * 2 : 64;
    struct entry *entries = HEED_NEW_N(dims->arena, struct entry, capacity);
    int *slots = HEED_NEW_N(dims->arena, int, 2 * capacity);
    if (!entries || !slots) return 0;
    if (dims->n) memcpy(entries, dims->entries, (size_t) dims->n * sizeof *entries);
    dims->entries = entries, dims->capacity = capacity;
    dims->slots = slots, dims->n_slots = 2 * capacity;
    for (int i = 0; i < dims->n; i++) *find_slot(dims, &entries[i]) = i + 1;
    return 1;
}

/* The symbol of an entry. What it points to is copied if the entry is new. */
static int64_t intern(heed_dims *dims, struct entry e)
{
    e.hash = hash_entry(dims, &e);
    if (!make_room(dims)) return HEED_DIM_UNKNOWN;
    int *slot = find_slot(dims, &e);
    if (*slot) return -(int64_t) *slot;
    if (e.kind == NAMED) {
        e.name = heed_arena_strdup(dims->arena, e.name);
        if (!e.name) return HEED_DIM_UNKNOWN;
    } else if (e.kind == POLY) {
        size_t size = offsetof(heed_poly, terms) + (size_t) e.poly->n * sizeof e.poly->terms[0];
        heed_poly *poly = heed_arena_alloc(dims->arena, size);
        if (!poly) return HEED_DIM_UNKNOWN;
        e.poly = memcpy(poly, e.poly, size);
    }
    dims->entries[dims->n++] = e;
    *slot = dims->n;
    return -(int64_t) dims->n;
}

static const struct entry *entry_of(const heed_dims *dims, int64_t dim)
{
    return dim < 0 && -1 - dim < dims->n ? &dims->entries[-1 - dim] : NULL;
}

heed_dims *heed_dims_clone(const heed_dims *dims, heed_arena *arena)
{
    heed_dims *copy = heed_dims_create(arena);
    if (!copy) return NULL;
    for (int i = 0; i < dims->n; i++)
        if (intern(copy, dims->entries[i]) != -1 - (int64_t) i) return NULL;
    copy->n_fresh = dims->n_fresh;
    return copy;
}

/* ---- between symbols and polynomials ---- */

static int poly_of(const heed_dims *dims, heed_poly *out, int64_t dim)
{
    const struct entry *e = entry_of(dims, dim);
    if (dim >= 0) heed_poly_number(out, dim);
    else if (!e) return 0;
    else if (e->kind != POLY) heed_poly_atom(out, (int) (-1 - dim));
    else memcpy(out, e->poly, offsetof(heed_poly, terms) + (size_t) e->poly->n * sizeof e->poly->terms[0]);
    return 1;
}

static int poly_not_negative(const heed_dims *dims, const heed_poly *p)
{
    for (int t = 0; t < p->n; t++) {
        if (p->terms[t].coef < 0) return 0;
        for (int i = 0; i < p->terms[t].degree; i++)
            if (!dims->entries[p->terms[t].factors[i]].not_negative) return 0;
    }
    return 1;
}

static int64_t dim_of(heed_dims *dims, const heed_poly *p)
{
    int64_t number;
    if (heed_poly_is_number(p, &number) && number >= 0) return number;
    if (p->n == 1 && p->terms[0].coef == 1 && p->terms[0].degree == 1) return -1 - (int64_t) p->terms[0].factors[0];
    return intern(dims, (struct entry){ .kind = POLY, .poly = p, .not_negative = poly_not_negative(dims, p) });
}

static int not_negative(const heed_dims *dims, int64_t dim)
{
    const struct entry *e = entry_of(dims, dim);
    return dim >= 0 || (e && e->not_negative);
}

/* 1 if a >= b whatever the named dimensions are. */
static int at_least(const heed_dims *dims, const heed_poly *a, const heed_poly *b)
{
    heed_poly difference;
    return heed_poly_add(&difference, a, b, -1) && poly_not_negative(dims, &difference);
}

/* An operation that stays as it is. Where the order of operands does not matter they get one order. */
static int64_t operation(heed_dims *dims, enum kind kind, int64_t a, int64_t b)
{
    if (!heed_dims_valid(dims, a) || !heed_dims_valid(dims, b)) return HEED_DIM_UNKNOWN;
    int a_not = not_negative(dims, a), b_not = not_negative(dims, b);
    struct entry e = { .kind = kind, .not_negative = a_not && b_not, .operands = { a, b } };
    if (kind == MAX) e.not_negative = a_not || b_not;
    if (kind == SUB) e.not_negative = 0;
    int ordered = (uint64_t) (-1 - a) <= (uint64_t) (-1 - b); /* older symbols first, numbers last */
    if (kind != DIV && kind != SUB && !ordered) e.operands[0] = b, e.operands[1] = a;
    return intern(dims, e);
}

/* ---- what the header promises ---- */

int64_t heed_dims_named(heed_dims *dims, const char *name)
{
    return intern(dims, (struct entry){ .kind = NAMED, .name = name, .not_negative = 1 });
}

int64_t heed_dims_fresh(heed_dims *dims)
{
    int64_t dim = intern(dims, (struct entry){ .kind = FRESH, .number = dims->n_fresh });
    if (dim != HEED_DIM_UNKNOWN) dims->n_fresh++;
    return dim;
}

int64_t heed_dims_literal(heed_dims *dims, int64_t number)
{
    heed_poly p;
    heed_poly_number(&p, number);
    return dim_of(dims, &p);
}

int64_t heed_dims_add(heed_dims *dims, int64_t a, int64_t b)
{
    heed_poly x, y;
    if (!poly_of(dims, &x, a) || !poly_of(dims, &y, b)) return heed_dims_fresh(dims);
    if (heed_poly_add(&x, &x, &y, 1)) return dim_of(dims, &x);
    return operation(dims, ADD, a, b);
}

int64_t heed_dims_sub(heed_dims *dims, int64_t a, int64_t b)
{
    heed_poly x, y;
    if (!poly_of(dims, &x, a) || !poly_of(dims, &y, b)) return heed_dims_fresh(dims);
    if (heed_poly_add(&x, &x, &y, -1)) return dim_of(dims, &x);
    return operation(dims, SUB, a, b);
}

int64_t heed_dims_mul(heed_dims *dims, int64_t a, int64_t b)
{
    heed_poly x, y;
    if (!poly_of(dims, &x, a) || !poly_of(dims, &y, b)) return heed_dims_fresh(dims);
    if (heed_poly_mul(&x, &x, &y)) return dim_of(dims, &x);
    return operation(dims, MUL, a, b);
}

int64_t heed_dims_div(heed_dims *dims, int64_t a, int64_t b)
{
    heed_poly x, y, quotient;
    int64_t number, by;
    if (!poly_of(dims, &x, a) || !poly_of(dims, &y, b) || y.n == 0) return heed_dims_fresh(dims);
    for (;;) {
        if (heed_poly_div_exact(&quotient, &x, &y)) return dim_of(dims, &quotient);
        if (heed_poly_is_number(&x, &number) && heed_poly_is_number(&y, &by) && by != -1)
            return heed_dims_literal(dims, number / by); /* by -1 is exact, or overflows */
        heed_poly_reduce(&x, &y);
        a = dim_of(dims, &x), b = dim_of(dims, &y);
        /* (p / q) / y = p / (q * y), which holds for rounding toward zero. p is an older entry, so this ends. */
        const struct entry *inner = entry_of(dims, a);
        heed_poly product;
        if (!inner || inner->kind != DIV || !poly_of(dims, &product, inner->operands[1]) ||
            !heed_poly_mul(&product, &product, &y) || !poly_of(dims, &x, inner->operands[0]))
            return operation(dims, DIV, a, b);
        y = product;
    }
}

static int has_operand(const heed_dims *dims, int64_t dim, enum kind kind, int64_t operand)
{
    const struct entry *e = entry_of(dims, dim);
    return e && e->kind == kind && (e->operands[0] == operand || e->operands[1] == operand);
}

/* min or max of a and b, where neither is known to be the one: min(min(a, c), a) = min(a, c), min(max(a, c), a) = a. */
static int64_t extreme(heed_dims *dims, enum kind kind, int64_t a, int64_t b)
{
    enum kind opposite = kind == MIN ? MAX : MIN;
    if (has_operand(dims, a, kind, b) || has_operand(dims, b, opposite, a)) return a;
    if (has_operand(dims, b, kind, a) || has_operand(dims, a, opposite, b)) return b;
    return operation(dims, kind, a, b);
}

int64_t heed_dims_min(heed_dims *dims, int64_t a, int64_t b)
{
    heed_poly x, y;
    if (!poly_of(dims, &x, a) || !poly_of(dims, &y, b)) return heed_dims_fresh(dims);
    if (a == INT64_MAX || at_least(dims, &x, &y)) return b; /* INT64_MAX is how exporters write "to the end" */
    if (b == INT64_MAX || at_least(dims, &y, &x)) return a;
    return extreme(dims, MIN, a, b);
}

int64_t heed_dims_max(heed_dims *dims, int64_t a, int64_t b)
{
    heed_poly x, y;
    if (!poly_of(dims, &x, a) || !poly_of(dims, &y, b)) return heed_dims_fresh(dims);
    if (at_least(dims, &x, &y)) return a;
    if (at_least(dims, &y, &x)) return b;
    return extreme(dims, MAX, a, b);
}

int heed_dims_known(const heed_dims *dims, int64_t dim, int64_t *number)
{
    const struct entry *e = entry_of(dims, dim);
    if (e && e->kind == POLY) return heed_poly_is_number(e->poly, number);
    if (dim < 0) return 0;
    *number = dim;
    return 1;
}

int heed_dims_valid(const heed_dims *dims, int64_t dim)
{
    return dim >= 0 || entry_of(dims, dim);
}

const char *heed_dims_name(const heed_dims *dims, int64_t dim)
{
    const struct entry *e = entry_of(dims, dim);
    return e && e->kind == NAMED ? e->name : NULL;
}

/* ---- text ---- */

enum { MAX_DEPTH = 8, MAX_TEXT = 400 };

static void print_dim(const heed_dims *dims, int64_t dim, int tight, int depth, size_t limit, heed_text *text);

static void print_term(const heed_dims *dims, const heed_term *term, int first, int depth, size_t limit, heed_text *text)
{
    int negative = term->coef < 0;
    uint64_t size = negative ? 0 - (uint64_t) term->coef : (uint64_t) term->coef;
    heed_text_add(text, "%s", first ? (negative ? "-" : "") : (negative ? " - " : " + "));
    if (size != 1 || !term->degree) heed_text_add(text, "%llu%s", (unsigned long long) size, term->degree ? "*" : "");
    for (int i = 0; i < term->degree; i++) {
        if (i) heed_text_add(text, "*");
        print_dim(dims, -1 - (int64_t) term->factors[i], 1, depth, limit, text);
    }
}

static void print_poly(const heed_dims *dims, const heed_poly *p, int tight, int depth, size_t limit, heed_text *text)
{
    int brackets = tight && p->n > 1, first = 0;
    if (brackets) heed_text_add(text, "(");
    while (first < p->n - 1 && p->terms[first].coef < 0) first++; /* "S - k" reads better than "-k + S" */
    if (p->terms[first].coef < 0) first = 0;
    print_term(dims, &p->terms[first], 1, depth, limit, text);
    for (int i = 0; i < p->n; i++)
        if (i != first) print_term(dims, &p->terms[i], 0, depth, limit, text);
    if (brackets) heed_text_add(text, ")");
}

/* tight: stands inside a product or quotient and needs brackets. Long and deep expressions are cut. */
static void print_dim(const heed_dims *dims, int64_t dim, int tight, int depth, size_t limit, heed_text *text)
{
    static const char *const infix[] = { [ADD] = " + ", [SUB] = " - ", [MUL] = "*", [DIV] = "/" };
    const struct entry *e = entry_of(dims, dim);
    if (!e) {
        if (dim < 0) heed_text_add(text, "?");
        else heed_text_add(text, "%lld", (long long) dim);
        return;
    }
    if (e->kind == NAMED || e->kind == FRESH) {
        if (e->kind == NAMED) heed_text_name(text, e->name);
        else heed_text_add(text, "?%d", e->number);
        return;
    }
    if (depth == MAX_DEPTH || text->size > limit) {
        heed_text_add(text, "..");
        return;
    }
    if (e->kind == POLY) {
        print_poly(dims, e->poly, tight, depth + 1, limit, text);
        return;
    }
    int prefix = e->kind == MIN || e->kind == MAX;
    heed_text_add(text, "%s", prefix ? (e->kind == MIN ? "min(" : "max(") : tight ? "(" : "");
    print_dim(dims, e->operands[0], !prefix, depth + 1, limit, text);
    heed_text_add(text, "%s", prefix ? ", " : infix[e->kind]);
    print_dim(dims, e->operands[1], !prefix, depth + 1, limit, text);
    if (prefix || tight) heed_text_add(text, ")");
}

void heed_dims_print(const heed_dims *dims, int64_t dim, heed_text *text)
{
    print_dim(dims, dim, 0, 0, text->size + MAX_TEXT, text);
}
