/* heed - fused attention for programs in C. This header brings in the whole of it.
 *
 * Attention on arrays (heed/attention.h):
 *
 *     heed_context *ctx;
 *     heed_context_create(&ctx, NULL);                      // this CPU, all its threads
 *
 *     heed_attention_desc desc;
 *     heed_attention_desc_init(&desc);                      // defaults, then what differs
 *     desc.heads_q = 32;
 *     desc.heads_kv = 8;
 *     desc.head_dim = 128;
 *     desc.max_len_q = desc.max_len_k = 4096;
 *     heed_attention_desc_set_causal(&desc, HEED_OFFSET_BOTTOM_RIGHT);
 *
 *     heed_attention_plan *plan;
 *     if (heed_attention_plan_create(&plan, ctx, &desc) != HEED_OK) puts(heed_last_message());
 *     puts(heed_attention_plan_explain(plan));              // which kernel, and why
 *
 *     heed_attention_args args;
 *     heed_attention_args_init(&args);
 *     args.q = &q, args.k = &k, args.v = &v, args.out = &out;   // DLTensor, any strides
 *     heed_attention_run(plan, &args, NULL, 0);
 *
 * A model (heed/model.h):
 *
 *     heed_model_load(&model, ctx, "model.onnx");
 *     heed_compile(&compiled, model, NULL);                 // finds attention, fuses it, says what it left alone
 *     heed_session_create(&session, compiled);
 *     heed_session_set_input(session, "input_ids", &ids);
 *     heed_session_run(session);
 *     heed_session_output(session, 0, &tensor);
 *
 * Every call returns a heed_status; heed_last_message() says in one line what was wrong. Nothing prints or exits.
 */
#ifndef HEED_H
#define HEED_H

#include <heed/attention.h>
#include <heed/common.h>
#include <heed/model.h>

#endif
