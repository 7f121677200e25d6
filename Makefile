# The two commands of the README, and a few for developers. The build itself is Meson's.
BUILD ?= build
MODELS ?=

.PHONY: all demo test deps format clean

all: deps
	@scripts/build.sh $(BUILD)

# Embeddings of English sentences with all-MiniLM-L6-v2. SENTENCES='one|two' for your own.
demo: all
	@scripts/demo.sh $(BUILD) "$(SENTENCES)"

# All tests; MODELS=DIR: also each DIR/CASE/{model.onnx,io.npz}.
test: all
	@scripts/test.sh $(BUILD) $(MODELS)

deps:
	@scripts/install-deps.sh

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

clean:
	rm -rf $(BUILD)
