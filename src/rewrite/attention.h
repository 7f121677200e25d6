/* rewrite/attention.h - one candidate for a fused attention, and the steps that fill it in:
 *
 *   attention_walk.c     from the softmax back to the product of Q and K, and on to the product with V
 *   attention_operand.c  what Q, K and V are behind transpositions, regrouped batches, factors and repeated heads
 *   attention_mask.c     one mask tensor out of all that is added to the scores or put in their place
 *   attention.c          the pass: candidates, the fused node, the report
 *
 * A step returns 0 when the candidate must be left alone; the reason is in match->reason then. Nothing in the graph changes
 * before every step has said yes; nodes made by a step that is followed by a refusal have no users and are pruned.
 *
 * Words: the scores have dimensions [lead.., S, T]; S is the number of queries, T of keys. The lead (batch, heads) may be
 * grouped differently along the way: [B, H], [B*H], [B, W, H]. The frame is the grouping of the fused node.
 */
#ifndef HEED_REWRITE_ATTENTION_H
#define HEED_REWRITE_ATTENTION_H

#include "rewrite/match.h"

enum { HEED_MATCH_MASKS_MAX = 8, HEED_MATCH_INNER_MAX = 64, HEED_LEAD_MAX = HEED_RANK_MAX - 2 };

/* The grouping of the lead dimensions, from the left. */
typedef struct heed_lead {
    int n;
    int64_t dims[HEED_LEAD_MAX];
} heed_lead;

typedef enum heed_score_mask_kind {
    HEED_SCORES_ADDED,    /* scores + value */
    HEED_SCORES_REPLACED, /* where value (a condition) says so, fill in place of scores */
    HEED_SCORES_RAISED    /* max(scores, fill) */
} heed_score_mask_kind;

/* What hides keys, one step of the scores. */
typedef struct heed_score_mask {
    heed_score_mask_kind kind;
    heed_value *value;
    int keeps;       /* the condition says which scores stay, not which go */
    double fill;     /* what hidden scores become */
    double factor;   /* what `value` or `fill` is multiplied by between there and the softmax */
    heed_dtype type; /* of the scores there */
    heed_lead lead;  /* the grouping of the scores that it was written for */
} heed_score_mask;

/* An operand of a product as the graph has it: rows x columns in the last two dimensions, or the other way round. */
typedef struct heed_operand {
    heed_value *value;
    int permuted; /* by perm into [lead.., rows, columns] */
    int64_t perm[HEED_RANK_MAX];
    int swapped; /* value is [lead.., columns, rows] */
    int full;    /* its lead is the product's, nothing is broadcast */
    heed_lead lead;
} heed_operand;

typedef struct heed_attention_match {
    heed_graph *graph;
    heed_node *softmax, *scores, *product; /* scores: the product of Q and K; product: the one with V */
    heed_operand q, k, v;
    double scale, softcap;
    heed_value *tensor_factor; /* [.., S|1, 1] that the scores are multiplied by; NULL: none */
    heed_lead tensor_lead;
    int n_masks;
    heed_score_mask masks[HEED_MATCH_MASKS_MAX]; /* the one next to the softmax first */
    heed_lead scores_lead, softmax_lead, product_lead;
    int n_inner;
    heed_value *inner[HEED_MATCH_INNER_MAX]; /* values that fusing does away with */
    int has_guard;
    int out_permuted; /* the product gives [lead.., S, Dv] permuted by out_perm */
    int64_t out_perm[HEED_RANK_MAX];
    /* What goes into the fused node. */
    heed_lead frame;
    heed_value *in_q, *in_k, *in_v, *in_mask;
    int64_t heads_per_kv; /* 1, or what K and V were repeated by */
    char reason[400];
} heed_attention_match;

int heed_attention_refuse(heed_attention_match *match, const char *fmt, ...) HEED_PRINTF(2, 3);

/* Fill in scores, q, k, scale, softcap, masks from match->softmax. 0 and an empty reason: not even a candidate. */
int heed_attention_walk_scores(heed_attention_match *match);
/* Fill in product, v. */
int heed_attention_walk_product(heed_attention_match *match);
/* 1 if there is a product of two computed matrices not far behind the value, whatever stands between. */
int heed_attention_has_scores(const heed_value *value);
/* What a product reads: a [lead.., rows, inner]; b [lead.., columns, inner] for scores, [lead.., inner, columns] for the product
 * with V. Its result is [lead.., rows, columns], permuted if out_permuted. */
typedef struct heed_product {
    heed_operand a, b;
    int out_permuted;
    int64_t out_perm[HEED_RANK_MAX];
} heed_product;

/* Read a node as the product of Q and K. */
int heed_attention_read_scores(const heed_node *node, heed_product *product);
/* Read it as the product of these probabilities with V. */
int heed_attention_read_product(const heed_node *node, const heed_value *probabilities, heed_product *product);

/* Fill in frame, in_q, in_k, in_v, heads_per_kv, and fold factors of q and k into the scale. */
int heed_attention_operands(heed_attention_match *match, heed_maker *maker);
/* Fill in in_mask. */
int heed_attention_mask(heed_attention_match *match, heed_maker *maker);

/* If K and V [B, H, T, D] are both repeated along H, take them as they were before. Returns the number of repeats, or 1. */
int64_t heed_attention_unrepeat(heed_maker *maker, heed_value **k, heed_value **v);
/* Its only user turns [B, H, S, D] into [B, S, H, D]: worth an out_layout of 1. */
int heed_attention_is_merged_after(const heed_value *out);

/* A tensor that is broadcast to scores of lead `from`, for scores of the frame's lead; NULL if it cannot be brought there. */
heed_value *heed_attention_into_frame(heed_attention_match *match, heed_maker *maker, heed_value *value, const heed_lead *from);

heed_lead heed_attention_lead(const heed_value *value); /* n is -1 if the rank is not known, or below 2 */
int heed_attention_same_lead(const heed_lead *a, const heed_lead *b);

#endif
