/* One decoding step of grouped-query attention over a KV cache: 8 query heads share 2 key/value heads, the cache has room
 * for 1024 positions and holds 300. The cache keeps [position, head, element] order; strides tell heed so.
 *
 *     cc attention.c $(pkg-config --cflags --libs heed)
 */
#include <heed/heed.h>
#include <stdio.h>
#include <stdlib.h>

enum { HEADS_Q = 8, HEADS_KV = 2, DIM = 64, CAPACITY = 1024 };

static float q[HEADS_Q * DIM], out[HEADS_Q * DIM];
static float cache_k[CAPACITY * HEADS_KV * DIM], cache_v[CAPACITY * HEADS_KV * DIM];

static void check(heed_status status)
{
    if (status == HEED_OK) return;
    fprintf(stderr, "%s: %s\n", heed_status_string(status), heed_last_message());
    exit(1);
}

/* [batch 1, heads, len, DIM] over data that lies as [len, heads, DIM]. The shape and strides belong to the caller. */
static DLTensor view(float *data, int64_t heads, int64_t len, int64_t shape[4], int64_t strides[4])
{
    shape[0] = 1, shape[1] = heads, shape[2] = len, shape[3] = DIM;
    strides[0] = len * heads * DIM, strides[1] = DIM, strides[2] = heads * DIM, strides[3] = 1;
    return (DLTensor){
        .data = data, .device = { kDLCPU, 0 }, .ndim = 4, .dtype = { kDLFloat, 32, 1 }, .shape = shape, .strides = strides
    };
}

int main(void)
{
    const int64_t length = 300; /* positions filled, the new one included */
    for (int i = 0; i < HEADS_Q * DIM; i++) q[i] = (float) (i % 7) - 3;
    for (int i = 0; i < length * HEADS_KV * DIM; i++) {
        cache_k[i] = (float) (i % 11) / 11;
        cache_v[i] = (float) (i / (HEADS_KV * DIM)); /* each value is its position */
    }

    heed_context *ctx;
    check(heed_context_create(&ctx, NULL));

    heed_attention_desc desc; /* made once, for all steps */
    heed_attention_desc_init(&desc);
    desc.heads_q = HEADS_Q, desc.heads_kv = HEADS_KV, desc.head_dim = DIM;
    desc.max_len_q = 1, desc.max_len_k = CAPACITY;
    desc.has_key_lengths = 1; /* how much of the cache counts comes with each run */
    heed_attention_desc_set_causal(&desc, HEED_OFFSET_BOTTOM_RIGHT);
    heed_attention_plan *plan;
    check(heed_attention_plan_create(&plan, ctx, &desc));

    int64_t shapes[4][4], strides[4][4];
    DLTensor tq = view(q, HEADS_Q, 1, shapes[0], strides[0]), tout = view(out, HEADS_Q, 1, shapes[1], strides[1]);
    DLTensor tk = view(cache_k, HEADS_KV, CAPACITY, shapes[2], strides[2]);
    DLTensor tv = view(cache_v, HEADS_KV, CAPACITY, shapes[3], strides[3]);
    heed_attention_args args;
    heed_attention_args_init(&args);
    args.q = &tq, args.k = &tk, args.v = &tv, args.out = &tout, args.key_lengths = &length;
    check(heed_attention_run(plan, &args, NULL, 0));

    printf("kernel %s\n", heed_attention_plan_kernel(plan));
    for (int h = 0; h < HEADS_Q; h++) printf("head %d attends around position %.1f\n", h, (double) out[h * DIM]);
    heed_attention_plan_destroy(plan);
    heed_context_destroy(ctx);
    return 0;
}
