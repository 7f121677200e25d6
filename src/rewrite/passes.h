/* rewrite/passes.h - the list of passes in the order in which they run. It ends with an entry without a name. */
#ifndef HEED_REWRITE_PASSES_H
#define HEED_REWRITE_PASSES_H

#include "rewrite/pass.h"

extern const heed_pass heed_passes[];

#endif
