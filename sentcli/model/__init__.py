"""What a loaded model is made of: its description, weights, tokenizer, torch module, and the backends that run it.

`SentenceEncoder.load` goes through three steps. `zoo.resolve` finds the folder of a name, in the hub's cache
(`hub.HubModel`) or by fetching it (`hub_fetch.fetch`). The commit of a model is that of its folder (`hub.commit_of`).
`model/spec_files.py` reads what the folder says about itself into the plain dataclasses of `model/spec.py`; there is no
torch in them, and options such as `--pooling` only change this description; `model/options.py` declares them all, with
their help texts. `model/folder_keys.py` says of every key of every file whether it is obeyed, changes nothing or is
refused; the table in models is made of it. `settings_files.py` reads the files that tell how texts are tokenised and
compared, `cross_encoder_files.py` classifiers, `adapters.py` what peft trained, `static.py` tables. **Whatever decides
a vector is a field of `EncoderSpec` or a module in it**, and `model/identity.py` makes all keys of it in one place:
those of exports in the cache, of kept scores and vectors, and the fingerprint in manifests. `encoder/loading.py`
chooses the backend. For torch, `model/building.py` builds the module of `model/torch_model.py` from the description,
`io/weights.py` reads the weights, and `model/torch_backend.py` chooses device and precision. For onnxruntime and
OpenVINO, the export lies beside the model (`model/exported.py`) or in the cache, which is made then. What comes out is
a `LoadedModel`: spec, tokenizer, backend, and the pipeline from texts to vectors. `SentenceEncoder` wraps it. A model
behind an address is a `ServedModel` (`model/served.py`) in its place: texts out, vectors in, and nothing is known of it
but the dimension, so that what needs weights or tokenizer asks for `SentenceEncoder.local`.

Encoding then runs: distinct texts, sorted by length, tokenised in chunks on a second thread, packed into batches, run
by the backend, and put back in order. A `Backend` (`model/encoding.py`) has the method `run(batch, prompt_length)` and
a few attributes. `streams` says how many batches it runs at a time. Its input are NumPy arrays, so that nothing above
it needs torch. Modules that an exported encoder goes through must not import torch or transformers; a test runs them
with both made unimportable. Pooling is decided in one place only, the spec. That is on purpose: wrong pooling is the
most common reason for wrong numbers.

Batching by token budget. The beginning of `model/encoding.py` decides which texts go through the model together. A
batch of a fixed number of texts wastes time: short ones are padded to the longest, and the memory it needs depends on
luck. Here a batch is limited by tokens instead.

`distinct` keeps each different text once and remembers where its twins are. Texts are ordered longest first; ties keep
their order, so the result does not depend on the sort. `pack` takes as many neighbours as fit, so that the number of
texts times the length of the longest stays within the budget. Since neighbours have nearly the same length, there is
nearly no padding. A text that exceeds the budget alone becomes a batch by itself. The budget is 1,024 tokens with torch
on a processor, which keeps the working set in its cache, 512 with onnxruntime, which runs several batches at a time,
and 32,768 on a GPU, which wants to be filled (65,536 in half precision, which take the same memory).

A backend begins a batch (`Backend.start`) and gives back what waits for its vectors. On a processor with several
streams that is a thread; on CUDA the arrays go to the device from pinned memory, the vectors come back into pinned
memory, and four batches are under way before the first is waited for. Nothing in the forward pass asks the device for a
value: a test runs it on torch's meta device, where every such question is an error. Meanwhile a thread tokenises the
next chunk of texts (2,048, or 8,192 for an accelerator) in one call, which uses all cores.

Flat batches. `model/flat.py` lays the tokens of several texts out one after the other: ids, positions, where each text
begins, and the longest length, as text-embeddings-inference does. `model/flat_attention.py` alone chooses the kernel
that keeps the texts apart: `torch.nn.attention.varlen` on CUDA in half precision, else none, and then batches are
padded. The layers of transformers run on the row through the attention function that `model/attention.py` registers;
token vectors are padded after the layers, for pooling and the other modules. `forcing` puts another kernel in its
place: with `text_by_text`, which computes one text after the other, the tests compare all families of `FLAT_FAMILIES`
and all modules with single texts on a processor.

When a model is loaded, `trial` runs two texts many times over in one flat batch, more tokens than the model has
positions, one text longer than its window if it has one, and compares them with the same texts alone. So a family that
counts its positions otherwise, or mixes tokens by more than attention, is found before it makes a wrong vector.
"""
