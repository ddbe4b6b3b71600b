"""PyTorch as a peer: the same architectures from transformers and torchvision, random weights, `torch.compile`.

Only where they are installed: `pip install torch transformers torchvision` into bench/.venv. Speed alone is compared, since the weights differ.
"""


def build(label):
    """The module of a workload and what turns its inputs into arguments; `None` where there is none."""
    import torch

    def bert(layers, hidden, heads, inner):
        from transformers import BertConfig, BertModel

        config = BertConfig(num_hidden_layers=layers, hidden_size=hidden, num_attention_heads=heads, intermediate_size=inner)
        return BertModel(config)

    def tokens(x):
        return {n: torch.from_numpy(v) for n, v in x.items()}

    if label.startswith("minilm"):
        return bert(6, 384, 12, 1536), tokens
    if label.startswith("bert_base"):
        return bert(12, 768, 12, 3072), tokens
    if label.startswith(("resnet50", "mobilenet_v2")):
        import torchvision

        name = label.split()[0]
        return getattr(torchvision.models, name)(), lambda x: {"x": torch.from_numpy(x["input"])}
    return None


class Torch:
    """PyTorch with `torch.compile`, in inference mode."""

    name = "pytorch"

    def __init__(self, label, inputs, threads):
        import torch

        torch.set_num_threads(threads)
        module, convert = build(label)
        self.module = torch.compile(module.eval())
        self.inputs = convert(inputs)
        self.run()

    def run(self):
        import torch

        with torch.inference_mode():
            return self.module(**self.inputs)
