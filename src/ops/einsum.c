/* Einsum: the equation is read, and the terms are contracted from left to right. A step of two terms is one batched matrix
 * product: a label is a batch (in both terms and needed later), a row (in the left one), a column (in the right one) or summed
 * over. Labels of one term that nobody needs are summed first. Strides express every permutation, so that only what does not fit
 * a matrix is copied.
 */
#include <string.h>

#include "ops/gemm.h"
#include "ops/line_io.h"

/* Labels 0 to 51 are letters; the ones after are the dimensions of "...", aligned to the right. */
enum { LETTERS = 52, LABELS = LETTERS + HEED_RANK_MAX, TERMS_MAX = 16 };
typedef uint64_t label_set;

typedef struct term {
    int n;
    int labels[HEED_RANK_MAX];
} term;

typedef struct equation {
    int n_terms, n_ellipsis; /* dimensions of the longest "..." */
    term terms[TERMS_MAX], out;
} equation;

static label_set bit(int label)
{
    return (label_set) 1 << label;
}

static label_set labels_of(const term *t)
{
    label_set set = 0;
    for (int d = 0; d < t->n; d++) set |= bit(t->labels[d]);
    return set;
}

/* ---- reading ---- */

static int label_of(char c)
{
    if (c >= 'a' && c <= 'z') return c - 'a';
    if (c >= 'A' && c <= 'Z') return c - 'A' + 26;
    return -1;
}

/* One term up to ',', '-' or the end. *ellipsis: where "..." stands in it, -1: nowhere. NULL if it is malformed. */
static const char *read_letters(const char *p, term *t, int *ellipsis)
{
    *ellipsis = -1;
    t->n = 0;
    for (;; p++) {
        if (*p == ' ') continue;
        if (*p == '.') {
            if (*ellipsis >= 0 || p[1] != '.' || p[2] != '.') return NULL;
            *ellipsis = t->n, p += 2;
            continue;
        }
        int label = label_of(*p);
        if (label < 0) return *p == ',' || *p == '-' || *p == '\0' ? p : NULL;
        if (t->n == HEED_RANK_MAX) return NULL;
        t->labels[t->n++] = label;
    }
}

/* Put n ellipsis labels into a term at `at`. */
static int insert_ellipsis(term *t, int at, int n)
{
    if (at < 0) return 1;
    if (t->n + n > HEED_RANK_MAX) return 0;
    memmove(t->labels + at + n, t->labels + at, (size_t) (t->n - at) * sizeof *t->labels);
    for (int d = 0; d < n; d++) t->labels[at + d] = LABELS - n + d;
    t->n += n;
    return 1;
}

static int repeats_a_label(const term *t)
{
    label_set seen = 0;
    for (int d = 0; d < t->n; d++) {
        if (seen & bit(t->labels[d])) return 1;
        seen |= bit(t->labels[d]);
    }
    return 0;
}

/* Without "->" the output is "..." and then the letters that occur once, in order of the alphabet. 0 if they are too many. */
static int implied_output(equation *e)
{
    int count[LETTERS] = { 0 };
    for (int k = 0; k < e->n_terms; k++)
        for (int d = 0; d < e->terms[k].n; d++)
            if (e->terms[k].labels[d] < LETTERS) count[e->terms[k].labels[d]]++;
    e->out.n = 0;
    for (int d = 0; d < e->n_ellipsis; d++) e->out.labels[e->out.n++] = LABELS - e->n_ellipsis + d;
    /* The order of characters: capitals first. */
    for (int k = 0; k < LETTERS; k++) {
        int label = (k + 26) % LETTERS;
        if (count[label] != 1) continue;
        if (e->out.n == HEED_RANK_MAX) return 0;
        e->out.labels[e->out.n++] = label;
    }
    return 1;
}

static const char *check_output(const equation *e)
{
    label_set all = 0, so_far = 0;
    for (int k = 0; k < e->n_terms; k++) all |= labels_of(&e->terms[k]);
    if (repeats_a_label(&e->out)) return "a label is twice in the output";
    if (labels_of(&e->out) & ~all) return "the output has a label that no term has";
    for (int k = 0; k < e->n_terms; k++) {
        label_set needed = labels_of(&e->out);
        for (int j = k + 1; j < e->n_terms; j++) needed |= labels_of(&e->terms[j]);
        so_far = (so_far | labels_of(&e->terms[k])) & needed;
        if (__builtin_popcountll(so_far) > HEED_RANK_MAX) return "a step from left to right has more than 8 dimensions";
    }
    return NULL;
}

/* NULL, or what is wrong. ranks: of the inputs. */
static const char *read_equation(equation *e, const char *text, int n_terms, const int *ranks)
{
    int ellipsis[TERMS_MAX];
    const char *p = text;
    *e = (equation){ .n_terms = n_terms };
    for (int k = 0; k < n_terms; k++) {
        if (!(p = read_letters(p, &e->terms[k], &ellipsis[k]))) return "it is malformed";
        if (*p != ',' && k + 1 < n_terms) return "it has fewer terms than there are inputs";
        if (*p == ',' && k + 1 == n_terms) return "it has more terms than there are inputs";
        if (*p == ',') p++;
        int n = ranks[k] - e->terms[k].n;
        if (n < 0 || (n > 0 && ellipsis[k] < 0)) return "a term has another number of labels than its input has dimensions";
        if (!insert_ellipsis(&e->terms[k], ellipsis[k], n)) return "a term has more than 8 dimensions";
        if (ellipsis[k] >= 0 && n > e->n_ellipsis) e->n_ellipsis = n;
    }
    if (*p == '\0') {
        return implied_output(e) ? check_output(e) : "the output has more than 8 dimensions";
    }
    int at;
    if (p[0] != '-' || p[1] != '>' || !(p = read_letters(p + 2, &e->out, &at)) || *p) return "it is malformed";
    if (!insert_ellipsis(&e->out, at, e->n_ellipsis)) return "the output has more than 8 dimensions";
    return check_output(e);
}

/* ---- shapes ---- */

/* A diagonal does not broadcast. */
static heed_status check_diagonals(heed_infer *i, const char *text, const term *t, int k)
{
    const int64_t *dims = i->in[k]->dims;
    for (int d = 0; d < t->n; d++)
        for (int f = 0; f < d; f++)
            if (t->labels[d] == t->labels[f] && dims[d] != dims[f] && dims[d] >= 0 && dims[f] >= 0)
                return heed_infer_fail(i, "equation '%s': input %d has %lld and %lld elements at two axes of one label", text, k,
                                       (long long) dims[f], (long long) dims[d]);
    return HEED_OK;
}

static heed_status infer_einsum(heed_infer *i)
{
    const char *text = heed_node_string(i->node, "equation", "");
    int ranks[TERMS_MAX];
    HEED_TRY(heed_infer_same_type(i, 0, i->n_in - 1, &i->out[0].dtype));
    if (i->out[0].dtype != HEED_DTYPE_NONE && !heed_gemm_takes(i->out[0].dtype))
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: its type is %s, expected a float or an integer of 32 or 64 bits", i->node->op,
                         heed_dtype_name(i->out[0].dtype));
    if (i->n_in > TERMS_MAX)
        return heed_fail(HEED_ERR_UNSUPPORTED, "%s: %d inputs, at most %d are supported", i->node->op, i->n_in, TERMS_MAX);
    for (int k = 0; k < i->n_in; k++) {
        if (!i->in[k]) return heed_infer_fail(i, "input %d is missing", k);
        ranks[k] = i->in[k]->rank;
        if (ranks[k] < 0) return HEED_OK;
    }
    equation e;
    const char *wrong = read_equation(&e, text, i->n_in, ranks);
    if (wrong) return heed_infer_fail(i, "equation '%s': %s", text, wrong);
    int64_t sizes[LABELS];
    for (int l = 0; l < LABELS; l++) sizes[l] = 1;
    for (int k = 0; k < e.n_terms; k++) HEED_TRY(check_diagonals(i, text, &e.terms[k], k));
    for (int k = 0; k < e.n_terms; k++)
        for (int d = 0; d < e.terms[k].n; d++) {
            int64_t *size = &sizes[e.terms[k].labels[d]];
            if (heed_infer_broadcast_dim(i, *size, i->in[k]->dims[d], size) != HEED_OK)
                return heed_infer_fail(i, "equation '%s': input %d has %lld elements at axis %d, another one %lld", text, k,
                                       (long long) i->in[k]->dims[d], d, (long long) *size);
        }
    i->out[0].rank = e.out.n;
    for (int d = 0; d < e.out.n; d++) i->out[0].dims[d] = sizes[e.out.labels[d]];
    return HEED_OK;
}

/* ---- contracting ---- */

/* An operand: where each label's stride is. A label that is not there, or has size 1, has stride 0. */
typedef struct operand {
    heed_dtype dtype;
    void *data;
    label_set labels; /* those of size other than 1 */
    int64_t strides[LABELS];
} operand;

/* Labels that are one dimension of a matrix, in their order from slow to fast. */
typedef struct axis {
    int n;
    int labels[LABELS];
} axis;

/* One evaluation. A dry one only counts memory. */
typedef struct einsum {
    const heed_context *ctx;
    const heed_gemm_kernel *kernel;
    int64_t sizes[LABELS];
    int dry;
    char *gemm_scratch, *space;
    size_t gemm_bytes, used; /* most that a product needs; what operands take of space */
} einsum;

static void *take(einsum *s, size_t bytes)
{
    size_t at = s->used;
    s->used = heed_size_add(s->used, heed_size_add(bytes, 63) / 64 * 64);
    return s->dry ? NULL : s->space + at;
}

static size_t elements(const einsum *s, label_set labels)
{
    size_t n = 1;
    for (int l = 0; l < LABELS; l++)
        if (labels >> l & 1 && s->sizes[l] == 0) return 0;
    for (int l = 0; l < LABELS; l++)
        if (labels >> l & 1) n = heed_size_mul(n, (size_t) s->sizes[l]);
    return n;
}

static label_set labels_in(const axis *a)
{
    label_set set = 0;
    for (int i = 0; i < a->n; i++) set |= bit(a->labels[i]);
    return set;
}

/* The labels of a set in the order of an operand's strides. */
static axis sorted(const operand *o, label_set set)
{
    axis a = { 0 };
    for (int l = 0; l < LABELS; l++) {
        if (!(set >> l & 1)) continue;
        int at = a.n++;
        for (; at > 0 && o->strides[a.labels[at - 1]] < o->strides[l]; at--) a.labels[at] = a.labels[at - 1];
        a.labels[at] = l;
    }
    return a;
}

/* 1 if the labels are one dimension of the operand's memory; *stride is its stride. */
static int joins(const einsum *s, const operand *o, const axis *a, int64_t *stride)
{
    *stride = a->n ? o->strides[a->labels[a->n - 1]] : 0;
    for (int i = a->n - 1; i > 0; i--)
        if (o->strides[a->labels[i - 1]] != o->strides[a->labels[i]] * s->sizes[a->labels[i]]) return 0;
    return 1;
}

/* A dense operand: batch labels, then the two axes. */
static operand make_dense(einsum *s, heed_dtype dtype, label_set batch, const axis *first, const axis *second)
{
    operand o = { .dtype = dtype, .labels = batch };
    const axis *axes[] = { second, first };
    int64_t stride = 1;
    for (int k = 0; k < 2; k++)
        for (int i = axes[k]->n - 1; i >= 0; i--) {
            int l = axes[k]->labels[i];
            o.strides[l] = stride, o.labels |= bit(l);
            stride *= s->sizes[l] ? s->sizes[l] : 1;
        }
    for (int l = LABELS - 1; l >= 0; l--) {
        if (!(batch >> l & 1)) continue;
        o.strides[l] = stride;
        stride *= s->sizes[l] ? s->sizes[l] : 1;
    }
    o.data = take(s, heed_size_mul(elements(s, o.labels), heed_dtype_size(dtype)));
    return o;
}

/* An operand never has more than 8 labels: the rule saw to it. */
static heed_tensor tensor_of(const einsum *s, const operand *o, const axis *a)
{
    heed_tensor t = { .dtype = o->dtype, .rank = a->n, .data = o->data };
    for (int d = 0; d < a->n; d++) t.dims[d] = s->sizes[a->labels[d]], t.strides[d] = o->strides[a->labels[d]];
    return t;
}

/* to = from, of the same labels. */
static void copy_operand(const einsum *s, const operand *to, const operand *from)
{
    if (s->dry) return;
    axis a = sorted(to, to->labels);
    heed_tensor t = tensor_of(s, to, &a), f = tensor_of(s, from, &a);
    if (t.dtype == f.dtype) {
        heed_copy(s->ctx, &t, &f);
        return;
    }
    int64_t n = heed_tensor_count(&t), index[HEED_RANK_MAX] = { 0 };
    for (int64_t i = 0; i < n; i++) { /* f32 into halves, the last step of a long equation */
        int64_t at = 0, to_at = 0;
        for (int d = 0; d < t.rank; d++) at += index[d] * f.strides[d], to_at += index[d] * t.strides[d];
        heed_cast_line(t.dtype, heed_at(t.data, t.dtype, to_at), 0, f.dtype, heed_at(f.data, f.dtype, at), 0, 1);
        for (int d = t.rank - 1; d >= 0 && ++index[d] == t.dims[d]; d--) index[d] = 0;
    }
}

/* An operand as matrices: itself, or a copy where an axis does not join. */
static heed_matrix as_matrix(einsum *s, const operand *o, const axis *batch, const axis *rows, const axis *cols)
{
    heed_matrix m = { .dtype = o->dtype, .data = o->data };
    operand made = *o;
    if (!joins(s, o, rows, &m.row) || !joins(s, o, cols, &m.col)) {
        made = make_dense(s, o->dtype, o->labels & ~(labels_in(rows) | labels_in(cols)), rows, cols);
        copy_operand(s, &made, o);
        joins(s, &made, rows, &m.row);
        joins(s, &made, cols, &m.col);
        m.data = made.data;
    }
    for (int d = 0; d < batch->n; d++) m.batch[d] = made.strides[batch->labels[d]];
    return m;
}

static int64_t size_of(const einsum *s, const axis *a)
{
    int64_t n = 1;
    for (int i = 0; i < a->n; i++) n *= s->sizes[a->labels[i]];
    return n;
}

/* Order of the labels to sum over: one that joins in both operands if there is one. */
static axis order_of_sums(const einsum *s, const operand *a, const operand *b, label_set sums)
{
    axis by_a = sorted(a, sums), by_b = sorted(b, sums);
    int64_t stride;
    return joins(s, a, &by_b, &stride) && joins(s, b, &by_b, &stride) ? by_b : by_a;
}

/* out = a . b, where a and b have no label of their own that out does not have. */
static void multiply(einsum *s, const operand *a, const operand *b, const operand *out)
{
    label_set shared = a->labels & b->labels;
    axis batch = sorted(out, shared & out->labels), sums = order_of_sums(s, a, b, shared & ~out->labels);
    axis rows = sorted(out, a->labels & ~shared), cols = sorted(out, b->labels & ~shared);
    operand to = *out;
    heed_gemm g = { .kernel = s->kernel,
                    .n_batch = batch.n,
                    .m = size_of(s, &rows),
                    .n = size_of(s, &cols),
                    .k = size_of(s, &sums),
                    .alpha = 1,
                    .beta = 1,
                    .c = { .dtype = out->dtype } };
    int direct = joins(s, out, &rows, &g.c.row) && joins(s, out, &cols, &g.c.col);
    if (!direct) {
        rows = sorted(a, a->labels & ~shared), cols = sorted(b, b->labels & ~shared);
        to = make_dense(s, out->dtype, shared & out->labels, &rows, &cols);
        joins(s, &to, &rows, &g.c.row);
        joins(s, &to, &cols, &g.c.col);
    }
    g.c.data = to.data;
    for (int d = 0; d < batch.n; d++) g.batch[d] = s->sizes[batch.labels[d]], g.c.batch[d] = to.strides[batch.labels[d]];
    g.a = as_matrix(s, a, &batch, &rows, &sums);
    g.b = as_matrix(s, b, &batch, &sums, &cols);
    heed_gemm_simplify(&g);
    size_t bytes = heed_gemm_scratch(s->ctx, &g);
    if (bytes > s->gemm_bytes) s->gemm_bytes = bytes;
    if (s->dry) return;
    heed_gemm_run(s->ctx, &g, s->gemm_scratch);
    if (!direct) copy_operand(s, out, &to);
}

/* Sum over the labels that are not in `needed`: a product with ones. */
static operand sum_out(einsum *s, const operand *a, label_set needed, heed_dtype sum_dtype)
{
    static const uint64_t ones[HEED_DTYPE_COUNT] = {
        [HEED_F32] = 0x3f800000, [HEED_F16] = 0x3c00, [HEED_BF16] = 0x3f80, [HEED_F64] = 0x3ff0000000000000,
        [HEED_I32] = 1,          [HEED_I64] = 1,      [HEED_U32] = 1,       [HEED_U64] = 1
    };
    if (!(a->labels & ~needed)) return *a;
    static const axis none;
    axis kept = sorted(a, a->labels & needed);
    operand one = { .dtype = a->dtype, .data = (void *) (uintptr_t) &ones[a->dtype], .labels = a->labels & ~needed };
    operand out = make_dense(s, sum_dtype, 0, &kept, &none);
    multiply(s, a, &one, &out);
    return out;
}

/* Intermediate results are f32 where the inputs are narrower. */
static heed_dtype sum_type(heed_dtype dtype)
{
    return dtype == HEED_F16 || dtype == HEED_BF16 ? HEED_F32 : dtype;
}

static operand operand_of(const heed_tensor *t, const term *labels)
{
    operand o = { .dtype = t->dtype, .data = t->data };
    for (int d = 0; d < labels->n; d++) {
        if (t->dims[d] == 1) continue;
        o.labels |= bit(labels->labels[d]);
        o.strides[labels->labels[d]] += t->strides[d]; /* a label twice: the diagonal */
    }
    return o;
}

static void evaluate(einsum *s, const equation *e, const heed_tensor *const *in, const heed_tensor *out)
{
    heed_dtype dtype = sum_type(out->dtype);
    operand to = operand_of(out, &e->out), left = operand_of(in[0], &e->terms[0]);
    for (int k = 1; k <= e->n_terms; k++) {
        label_set later = to.labels;
        for (int j = k; j < e->n_terms; j++) later |= operand_of(in[j], &e->terms[j]).labels;
        left = sum_out(s, &left, later, dtype);
        if (k == e->n_terms) break;
        label_set needed = to.labels;
        for (int j = k + 1; j < e->n_terms; j++) needed |= operand_of(in[j], &e->terms[j]).labels;
        operand right = operand_of(in[k], &e->terms[k]);
        right = sum_out(s, &right, needed | left.labels, dtype);
        if (k + 1 == e->n_terms) {
            multiply(s, &left, &right, &to);
            return;
        }
        static const axis none;
        axis kept = sorted(&left, (left.labels | right.labels) & needed);
        operand next = make_dense(s, dtype, 0, &kept, &none);
        multiply(s, &left, &right, &next);
        left = next;
    }
    copy_operand(s, &to, &left);
}

/* ---- running ---- */

static void start(einsum *s, equation *e, const heed_compute *c)
{
    int ranks[TERMS_MAX];
    const heed_gemm_state *state = c->state;
    *s = (einsum){ .ctx = c->ctx, .kernel = state->kernel, .dry = 1 };
    for (int k = 0; k < c->n_in; k++) ranks[k] = c->in[k]->rank;
    read_equation(e, heed_node_string(c->node, "equation", ""), c->n_in, ranks); /* the rule has found it well-formed */
    for (int l = 0; l < LABELS; l++) s->sizes[l] = 1;
    for (int k = 0; k < c->n_in; k++)
        for (int d = 0; d < e->terms[k].n; d++)
            if (c->in[k]->dims[d] != 1) s->sizes[e->terms[k].labels[d]] = c->in[k]->dims[d];
    evaluate(s, e, c->in, c->out[0]);
}

static size_t scratch_einsum(const heed_compute *c)
{
    einsum s;
    equation e;
    start(&s, &e, c);
    return heed_size_add(heed_size_add(s.gemm_bytes, 64), s.used);
}

static heed_status compute_einsum(heed_compute *c)
{
    einsum s;
    equation e;
    start(&s, &e, c);
    if (heed_tensor_count(c->out[0]) == 0) return HEED_OK;
    s.gemm_scratch = c->scratch;
    s.space = (char *) c->scratch + (s.gemm_bytes + 63) / 64 * 64;
    s.dry = 0, s.used = 0;
    evaluate(&s, &e, c->in, c->out[0]);
    return HEED_OK;
}

static heed_status prepare_einsum(heed_compute *c, void **state)
{
    return heed_gemm_state_create(c, NULL, state);
}

const heed_op heed_ops_einsum[] = {
    { .domain = "",
      .name = "Einsum",
      .since = 12,
      .min_in = 1,
      .max_in = -1,
      .min_out = 1,
      .max_out = 1,
      .flags = HEED_OP_STRIDED | HEED_OP_KEEP_STATE,
      .infer = infer_einsum,
      .compute = compute_einsum,
      .scratch = scratch_einsum,
      .prepare = prepare_einsum,
      .release = heed_gemm_state_release },
    { 0 },
};
