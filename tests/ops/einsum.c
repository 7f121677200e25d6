/* Einsum against a sum over all values of all labels, in double. */
#include "ops/bench_node.h"

enum { LABELS = 128 };

/* Sizes of letters; '.' dimensions are written as digits in `terms`, which is the equation with the ellipsis spelled out. */
typedef struct einsum_case {
    const char *equation, *terms; /* "ij,jk", without the output */
    const char *out;
} einsum_case;

static const einsum_case cases[] = {
    { "ij,jk->ik", "ij,jk", "ik" },
    { "ij,jk", "ij,jk", "ik" },
    { "bhqd,bhkd->bhqk", "bhqd,bhkd", "bhqk" },
    { "bhqk,bhkd->bhqd", "bhqk,bhkd", "bhqd" },
    { "bqhd,bkhd->bhqk", "bqhd,bkhd", "bhqk" },
    { "bhqk,bkhd->bqhd", "bhqk,bkhd", "bqhd" },
    { "abc,cd->abd", "abc,cd", "abd" },
    { "abcd,cde->abe", "abcd,cde", "abe" },
    { "abcd,ecd->eab", "abcd,ecd", "eab" },
    { "acbd,dcae->be", "acbd,dcae", "be" },
    { "ab,cd->dbac", "ab,cd", "dbac" },
    { "i,i->", "i,i", "" },
    { "i,i", "i,i", "" },
    { "i,j->ji", "i,j", "ji" },
    { "ij->ji", "ij", "ji" },
    { "ij", "ij", "ij" },
    { "ba", "ba", "ab" },
    { "ijk->", "ijk", "" },
    { "ijk->ik", "ijk", "ik" },
    { "ijk->ki", "ijk", "ki" },
    { "ij,ij->ij", "ij,ij", "ij" },
    { "ij,j->ij", "ij,j", "ij" },
    { "ijk,jil->kl", "ijk,jil", "kl" },
    { "ij,kl->k", "ij,kl", "k" },
    { "ij,jk,kl->il", "ij,jk,kl", "il" },
    { "ab,bc,cd,de->ae", "ab,bc,cd,de", "ae" },
    { "ab,ab,ac->bc", "ab,ab,ac", "bc" },
    { "i,j,k->kij", "i,j,k", "kij" },
    { "...ij,...jk->...ik", "01ij,1jk", "01ik" },
    { "...ij,jk", "01ij,jk", "01ik" },
    { "i...,i...->...", "i01,i1", "01" },
    { "...->...", "01", "01" },
    { " a b , b c -> a c ", "ab,bc", "ac" },
    { "ii->i", "ii", "i" },
    { "ii", "ii", "" },
    { "...ii->...i", "0ii", "0i" },
    { "iji,kij->jk", "iji,kij", "jk" },
    { "aB,Bc->ac", "aB,Bc", "ac" },
};

static int read_terms(const char *terms, char text[][16])
{
    int n = 0, k = 0;
    for (const char *p = terms;; p++) {
        if (*p == ',' || !*p) {
            text[n++][k] = '\0', k = 0;
            if (!*p) return n;
        } else {
            text[n][k++] = *p;
        }
    }
}

/* Sum of products over all labels that are not in the output, whose values are in at[]. */
static double sum_over(const heed_tensor *const *in, char text[][16], int n, const char *labels, const int64_t *sizes,
                       int64_t *at, double *size)
{
    if (!*labels) {
        double p = 1;
        for (int k = 0; k < n; k++) {
            int64_t index[HEED_RANK_MAX];
            for (int d = 0; text[k][d]; d++) index[d] = at[(int) text[k][d]];
            p *= get_at(in[k], index, in[k]->rank);
        }
        *size += fabs(p);
        return p;
    }
    double sum = 0;
    for (int64_t i = 0; i < sizes[(int) *labels]; i++) {
        at[(int) *labels] = i;
        sum += sum_over(in, text, n, labels + 1, sizes, at, size);
    }
    return sum;
}

static void check_einsum(bench *b, const einsum_case *c, heed_dtype dtype, int with_ones)
{
    char text[8][16], summed[LABELS] = "";
    int n = read_terms(c->terms, text), rank = (int) strlen(c->out);
    int64_t sizes[LABELS];
    for (int l = 0; l < LABELS; l++) sizes[l] = between(b, 1, 5);
    const heed_tensor *in[8];
    for (int k = 0; k < n; k++) {
        int64_t dims[HEED_RANK_MAX];
        int broadcast = with_ones && next_random(b) % 2;
        for (int d = 0; text[k][d]; d++) dims[d] = broadcast && next_random(b) % 3 == 0 && n > 1 ? 1 : sizes[(int) text[k][d]];
        for (int d = 0; text[k][d]; d++) /* a diagonal has one size */
            for (int f = 0; f < d; f++)
                if (text[k][d] == text[k][f]) dims[d] = dims[f];
        in[k] = uniform_tensor(b, dtype, -3, 3, (int) strlen(text[k]), dims);
    }
    /* Sizes are what the inputs say: all may have been made 1. */
    for (int l = 0; l < LABELS; l++) sizes[l] = 1;
    for (int k = 0; k < n; k++)
        for (int d = 0; text[k][d]; d++)
            if (in[k]->dims[d] != 1) sizes[(int) text[k][d]] = in[k]->dims[d];
    for (const char *p = c->terms; *p; p++)
        if (*p != ',' && !strchr(c->out, *p) && !strchr(summed, *p)) summed[strlen(summed)] = *p;
    heed_node *node = node_of(b, "", "Einsum", 12, n, 1);
    set_string(b, node, "equation", c->equation);
    expect_node(b, node, in);
    assert_int_equal(b->out[0]->rank, rank);
    for (int d = 0; d < rank; d++) assert_int_equal(b->out[0]->dims[d], sizes[(int) c->out[d]]);
    for (int64_t e = 0; e < heed_tensor_count(b->out[0]); e++) {
        int64_t index[HEED_RANK_MAX], at[LABELS] = { 0 };
        unravel(b->out[0], e, index);
        for (int d = 0; d < rank; d++) at[(int) c->out[d]] = index[d];
        double size = 0, want = sum_over(in, text, n, summed, sizes, at, &size);
        double error =
            heed_dtype_is_float(dtype) ? rounding(dtype) * (fabs(want) + 1e-6) + (dtype == HEED_F64 ? 1e-13 : 1e-6) * size : 0;
        expect_close(get(b->out[0], e), want, error, c->equation, e);
    }
}

static void test_equations(void **state)
{
    (void) state;
    bench b = bench_start();
    static const heed_dtype types[] = { HEED_F32, HEED_F16, HEED_BF16, HEED_F64, HEED_I32, HEED_I64 };
    b.strides_matter = 1;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
        for (size_t t = 0; t < sizeof types / sizeof *types; t++)
            for (int round = 0; round < 6; round++) check_einsum(&b, &cases[k], types[t], round & 1);
    bench_end(&b);
}

static void test_empty(void **state)
{
    (void) state;
    bench b = bench_start();
    const heed_tensor *in[] = { tensor(&b, HEED_F32, DIMS(3, 0)), tensor(&b, HEED_F32, DIMS(0, 4)) };
    heed_node *node = node_of(&b, "", "Einsum", 12, 2, 1);
    set_string(&b, node, "equation", "ij,jk->ki");
    expect_node(&b, node, in);
    expect_shape(b.out[0], DIMS(4, 3));
    for (int64_t e = 0; e < 12; e++) assert_true(get(b.out[0], e) == 0);
    bench_end(&b);
}

static void test_refused(void **state)
{
    (void) state;
    bench b = bench_start();
    static const struct {
        const char *equation, *why;
    } bad[] = {
        { "ij,jk->il", "the output has a label that no term has" },
        { "ij,jk->ii", "a label is twice in the output" },
        { "ijk,jk->i", "a term has another number of labels than its input has dimensions" },
        { "ij->i", "it has fewer terms than there are inputs" },
        { "ij,jk,k->i", "it has more terms than there are inputs" },
        { "i$,jk->i", "it is malformed" },
        { "i..j,jk->i", "it is malformed" },
        { "ij,jk->i->", "it is malformed" },
        { "ij,jk-i", "it is malformed" },
        { "", "it has fewer terms than there are inputs" },
        { "abcdefghijk,jk->a", "it is malformed" },
    };
    const heed_tensor *in[] = { uniform_tensor(&b, HEED_F32, -1, 1, DIMS(3, 4)),
                                uniform_tensor(&b, HEED_F32, -1, 1, DIMS(4, 5)) };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        heed_node *node = node_of(&b, "", "Einsum", 12, 2, 1);
        set_string(&b, node, "equation", bad[k].equation);
        assert_int_equal(run_node(&b, node, in), HEED_ERR_ARGUMENT);
        if (!strstr(heed_last_message(), bad[k].why)) fail_msg("'%s': %s", bad[k].equation, heed_last_message());
    }
    heed_node *node = node_of(&b, "", "Einsum", 12, 2, 1);
    set_string(&b, node, "equation", "ij,kj->ik");
    assert_int_equal(run_node(&b, node, in), HEED_ERR_ARGUMENT); /* j is 4 and 5 */
    bench_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_equations), cmocka_unit_test(test_empty),
                                        cmocka_unit_test(test_refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
