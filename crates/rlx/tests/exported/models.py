"""The models that `make.py` exports: what each is built of, its inputs for given sizes, and the axes that may change."""

from dataclasses import dataclass
from typing import Callable

import torch
import torch.nn.functional as F
import transformers as hf
from torch import nn


@dataclass
class Spec:
    name: str
    build: Callable
    inputs: Callable
    sizes: list
    axes: dict
    outputs: list
    opset: int = 17
    exporters: tuple = ("script", "dynamo")


MODELS: list[Spec] = []


def model(name, inputs, sizes, axes, outputs, **more):
    """Adds a model, built by the function below it."""
    def add(build):
        MODELS.append(Spec(name, build, inputs, sizes, axes, outputs, **more))
        return build
    return add


def random(seed=0):
    return torch.Generator().manual_seed(100 + seed)


def ids(b, s, vocab=60):
    return torch.randint(1, vocab, (b, s), generator=random(b * 31 + s))


def noise(*dims):
    return torch.round(torch.randn(dims, generator=random(sum(dims))) * 16) / 16


def padding(b, s):
    """A mask whose rows but the first end early."""
    mask = torch.ones(b, s, dtype=torch.int64)
    for i in range(1, b):
        mask[i, max(1, s - i):] = 0
    return mask


class Pick(nn.Module):
    """A model called with named arguments; the results that are asked for."""

    def __init__(self, inner, names, pick, **fixed):
        super().__init__()
        self.inner, self.names, self.pick, self.fixed = inner, names, pick, fixed

    def forward(self, a, b=None, c=None):
        out = self.inner(**dict(zip(self.names, (a, b, c))), **self.fixed)
        picked = tuple(getattr(out, p) for p in self.pick)
        return picked[0] if len(picked) == 1 else picked


TEXT = {"ids": {0: "batch", 1: "seq"}, "mask": {0: "batch", 1: "seq"}}
IMAGE = {"pixels": {0: "batch"}}


def text(b, s):
    return {"ids": ids(b, s), "mask": padding(b, s)}


def only_ids(b, s):
    return {"ids": ids(b, s)}


SHAPES = [(2, 5), (3, 9), (1, 1)]
COMMON = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, vocab_size=64)


def encoder(cls, config, attention="sdpa", **fixed):
    inner = cls._from_config(config, attn_implementation=attention)
    return Pick(inner, ["input_ids", "attention_mask"], ["last_hidden_state"], **fixed)


@model("bert", text, SHAPES, TEXT, ["hidden"])
def bert():
    return encoder(hf.BertModel, hf.BertConfig(**COMMON, max_position_embeddings=32))


@model("bert_eager", text, SHAPES, TEXT, ["hidden"])
def bert_eager():
    return encoder(hf.BertModel, hf.BertConfig(**COMMON, max_position_embeddings=32), "eager")


@model("distilbert", text, SHAPES, TEXT, ["hidden"])
def distilbert():
    config = hf.DistilBertConfig(dim=32, n_layers=2, n_heads=4, hidden_dim=48, vocab_size=64, max_position_embeddings=32)
    return encoder(hf.DistilBertModel, config)


@model("deberta", text, SHAPES[:2], TEXT, ["hidden"])
def deberta():
    config = hf.DebertaV2Config(**COMMON, max_position_embeddings=32, relative_attention=True, position_buckets=8,
                                pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm", share_att_key=True)
    return encoder(hf.DebertaV2Model, config, "eager")


DECODER = dict(**COMMON, num_key_value_heads=2, max_position_embeddings=64, tie_word_embeddings=True)


def decoder(cls, config, attention="sdpa"):
    inner = cls._from_config(config, attn_implementation=attention)
    return Pick(inner, ["input_ids", "attention_mask"], ["logits"], use_cache=False)


@model("llama", text, SHAPES, TEXT, ["logits"])
def llama():
    return decoder(hf.LlamaForCausalLM, hf.LlamaConfig(**DECODER))


@model("llama_eager", text, SHAPES, TEXT, ["logits"])
def llama_eager():
    return decoder(hf.LlamaForCausalLM, hf.LlamaConfig(**DECODER), "eager")


@model("qwen2", text, SHAPES, TEXT, ["logits"])
def qwen2():
    return decoder(hf.Qwen2ForCausalLM, hf.Qwen2Config(**DECODER))


@model("qwen3", text, SHAPES, TEXT, ["logits"])
def qwen3():
    return decoder(hf.Qwen3ForCausalLM, hf.Qwen3Config(**DECODER, head_dim=8))


@model("mistral", text, [(2, 9), (1, 12)], TEXT, ["logits"])
def mistral():
    return decoder(hf.MistralForCausalLM, hf.MistralConfig(**DECODER, sliding_window=4))


@model("gemma2", text, [(2, 9), (1, 12)], TEXT, ["logits"])
def gemma2():
    config = hf.Gemma2Config(**DECODER, head_dim=8, sliding_window=4, query_pre_attn_scalar=8)
    return decoder(hf.Gemma2ForCausalLM, config, "eager")


@model("phi", text, SHAPES[:2], TEXT, ["logits"])
def phi():
    return decoder(hf.PhiForCausalLM, hf.PhiConfig(**{**DECODER, "tie_word_embeddings": False}, partial_rotary_factor=0.5))


@model("gpt_neox", text, SHAPES[:2], TEXT, ["logits"])
def gpt_neox():
    return decoder(hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig(**COMMON, max_position_embeddings=64, rotary_pct=0.5))


@model("gpt2", text, SHAPES[:2], TEXT, ["logits"])
def gpt2():
    config = hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64, n_positions=32)
    return decoder(hf.GPT2LMHeadModel, config)


# `dynamo` refuses a loop whose length depends on the data.
@model("mixtral", text, SHAPES[:2], TEXT, ["logits"], exporters=("script",))
def mixtral():
    config = hf.MixtralConfig(**{**DECODER, "intermediate_size": 24}, num_local_experts=4, num_experts_per_tok=2)
    return decoder(hf.MixtralForCausalLM, config)


class Cached(nn.Module):
    """A decoder of two layers that is given the keys and values of earlier tokens, and gives those of all."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, ids, mask, position, key_0, value_0, key_1, value_1):
        cache = hf.DynamicCache()
        cache.update(key_0, value_0, 0)
        cache.update(key_1, value_1, 1)
        out = self.inner(input_ids=ids, attention_mask=mask, position_ids=position, past_key_values=cache, use_cache=True)
        present = []
        for layer in out.past_key_values.to_legacy_cache():
            present += layer[:2]
        return (out.logits, *present)


def cached_inputs(heads, width):
    def make(b, s, past):
        given = {"ids": ids(b, s), "mask": torch.ones(b, s + past, dtype=torch.int64),
                 "position": torch.arange(past, past + s).expand(b, s).contiguous()}
        for i in range(2):
            for n in ("key", "value"):
                given[f"past_{n}_{i}"] = noise(b, heads, past, width)
        return given
    return make


CACHED = {"ids": {0: "batch", 1: "seq"}, "mask": {0: "batch", 1: "total"}, "position": {0: "batch", 1: "seq"},
          **{f"past_{n}_{i}": {0: "batch", 2: "past"} for i in range(2) for n in ("key", "value")}}
CACHED_OUT = ["logits", "present_key_0", "present_value_0", "present_key_1", "present_value_1"]


@model("llama_cache", cached_inputs(2, 8), [(2, 3, 4), (1, 1, 7), (2, 1, 6)], CACHED, CACHED_OUT)
def llama_cache():
    config = hf.LlamaConfig(**DECODER)
    return Cached(hf.LlamaForCausalLM._from_config(config, attn_implementation="sdpa"))


@model("gpt2_cache", cached_inputs(4, 8), [(2, 3, 4), (1, 1, 7)], CACHED, CACHED_OUT)
def gpt2_cache():
    config = hf.GPT2Config(n_embd=32, n_layer=2, n_head=4, vocab_size=64, n_positions=32)
    return Cached(hf.GPT2LMHeadModel._from_config(config, attn_implementation="eager"))


T5 = dict(d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=64, relative_attention_num_buckets=8,
          relative_attention_max_distance=16)


@model("t5_encoder", text, SHAPES, TEXT, ["hidden"])
def t5_encoder():
    return encoder(hf.T5EncoderModel, hf.T5Config(**T5, feed_forward_proj="gated-gelu"), "eager")


def pair(b, s, t):
    return {"ids": ids(b, s), "mask": padding(b, s), "target": ids(b, t)}


@model("t5", pair, [(2, 5, 3), (1, 7, 4)], {**TEXT, "target": {0: "batch", 1: "out"}}, ["logits"])
def t5():
    inner = hf.T5ForConditionalGeneration._from_config(hf.T5Config(**T5, num_decoder_layers=2), attn_implementation="eager")
    return Pick(inner, ["input_ids", "attention_mask", "decoder_input_ids"], ["logits"], use_cache=False)


def pixels(b, size, channels=3):
    return {"pixels": noise(b, channels, size, size)}


VISION = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)


@model("vit", pixels, [(2, 16), (3, 16)], IMAGE, ["hidden"])
def vit():
    config = hf.ViTConfig(**VISION, image_size=16, patch_size=4)
    return Pick(hf.ViTModel._from_config(config, attn_implementation="sdpa"), ["pixel_values"], ["last_hidden_state"])


IMAGE_ANY = {"pixels": {0: "batch", 2: "height", 3: "width"}}


# `dynamo` writes down the interpolated table of positions for the first image's size.
@model("dinov2", pixels, [(2, 16), (1, 24)], IMAGE_ANY, ["hidden"], exporters=("script",))
def dinov2():
    config = hf.Dinov2Config(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, mlp_ratio=2, image_size=16, patch_size=4)
    return Pick(hf.Dinov2Model._from_config(config, attn_implementation="sdpa"), ["pixel_values"], ["last_hidden_state"])


@model("swin", pixels, [(2, 32), (1, 32)], IMAGE, ["hidden"])
def swin():
    config = hf.SwinConfig(image_size=32, patch_size=2, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, mlp_ratio=2)
    return Pick(hf.SwinModel._from_config(config, attn_implementation="eager"), ["pixel_values"], ["last_hidden_state"])


@model("clip", lambda b, s: {"ids": ids(b, s), "pixels": noise(b, 3, 16, 16), "mask": padding(b, s)}, [(2, 6), (3, 4)],
       {**TEXT, "pixels": {0: "images"}}, ["scores"])
def clip():
    both = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48)
    config = hf.CLIPConfig(text_config=dict(**both, vocab_size=64, max_position_embeddings=16, eos_token_id=2),
                           vision_config=dict(**both, image_size=16, patch_size=8), projection_dim=16)
    inner = hf.CLIPModel._from_config(config, attn_implementation="sdpa")
    return Pick(inner, ["input_ids", "pixel_values", "attention_mask"], ["logits_per_image"])


@model("segformer", pixels, [(2, 32), (1, 64)], IMAGE_ANY, ["logits"])
def segformer():
    config = hf.SegformerConfig(depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[16, 32], num_encoder_blocks=2, patch_sizes=[7, 3],
                                strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=16, num_labels=5)
    return Pick(hf.SegformerForSemanticSegmentation._from_config(config), ["pixel_values"], ["logits"])


@model("convnext", pixels, [(2, 32), (1, 48)], IMAGE_ANY, ["hidden"])
def convnext():
    config = hf.ConvNextConfig(num_stages=2, hidden_sizes=[16, 32], depths=[1, 1], patch_size=4)
    return Pick(hf.ConvNextModel._from_config(config), ["pixel_values"], ["last_hidden_state"])


@model("efficientnet", pixels, [(2, 32), (1, 48)], IMAGE_ANY, ["hidden"])
def efficientnet():
    config = hf.EfficientNetConfig(width_coefficient=0.25, depth_coefficient=0.5, hidden_dim=320, in_channels=[16, 16], depthwise_padding=[],
                                   out_channels=[16, 24], kernel_sizes=[3, 5], strides=[1, 2], num_block_repeats=[1, 1], expand_ratios=[1, 4])
    return Pick(hf.EfficientNetModel._from_config(config), ["pixel_values"], ["pooler_output"])


@model("resnet", pixels, [(2, 32), (1, 40)], IMAGE_ANY, ["hidden"])
def resnet():
    config = hf.ResNetConfig(embedding_size=8, hidden_sizes=[16, 24], depths=[1, 1], layer_type="basic")
    return Pick(hf.ResNetModel._from_config(config), ["pixel_values"], ["last_hidden_state"])


class Block(nn.Module):
    """Two convolutions with group norms, a time embedding added between them, and the input added at the end."""

    def __init__(self, i, o, t):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(4, i), nn.GroupNorm(4, o)
        self.conv1, self.conv2 = nn.Conv2d(i, o, 3, padding=1), nn.Conv2d(o, o, 3, padding=1)
        self.time = nn.Linear(t, o)
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()

    def forward(self, x, t):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.conv2(F.silu(self.norm2(y))) + self.skip(x)


class Spatial(nn.Module):
    """Attention over the pixels, and over a context where there is one."""

    def __init__(self, c, context=None, heads=2):
        super().__init__()
        self.norm, self.heads = nn.GroupNorm(4, c), heads
        self.q, self.k, self.v = nn.Linear(c, c), nn.Linear(context or c, c), nn.Linear(context or c, c)
        self.out = nn.Linear(c, c)

    def forward(self, x, context=None):
        b, c, h, w = x.shape
        y = self.norm(x).reshape(b, c, h * w).transpose(1, 2)
        z = y if context is None else context
        split = lambda v: v.reshape(b, -1, self.heads, c // self.heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(split(self.q(y)), split(self.k(z)), split(self.v(z)))
        y = self.out(y.transpose(1, 2).reshape(b, h * w, c))
        return x + y.transpose(1, 2).reshape(b, c, h, w)


class UNet(nn.Module):
    """Down, across, up: residual blocks, attention in the middle, nearest and bilinear enlargement."""

    def __init__(self):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.Linear(16, 16))
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.down1, self.half1 = Block(8, 8, 16), nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.down2, self.half2 = Block(16, 16, 16), nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.middle, self.own, self.cross = Block(16, 16, 16), Spatial(16), Spatial(16, 12)
        self.up2, self.up1 = Block(32, 16, 16), Block(24, 8, 16)
        self.norm, self.last = nn.GroupNorm(4, 8), nn.Conv2d(8, 3, 3, padding=1)

    def forward(self, x, t, context):
        f = torch.exp(torch.arange(4, dtype=torch.float32) * -2.0)
        angle = t[:, None] * f[None, :]
        t = self.time(torch.cat([angle.sin(), angle.cos()], dim=-1))
        a = self.down1(self.first(x), t)
        b = self.down2(self.half1(a), t)
        m = self.cross(self.own(self.middle(self.half2(b), t)), context)
        m = F.interpolate(m, scale_factor=2.0, mode="nearest")
        m = self.up2(torch.cat([m, b], dim=1), t)
        m = F.interpolate(m, size=a.shape[2:], mode="bilinear", align_corners=False)
        m = self.up1(torch.cat([m, a], dim=1), t)
        return self.last(F.silu(self.norm(m)))


@model("unet", lambda b, h, w, s: {"pixels": noise(b, 3, h, w), "time": torch.arange(1, b + 1) * 3.5, "context": noise(b, s, 12)},
       [(2, 16, 16, 3), (1, 24, 16, 5)],
       {**IMAGE_ANY, "time": {0: "batch"}, "context": {0: "batch", 1: "words"}}, ["out"])
def unet():
    return UNet()


class Tagger(nn.Module):
    """Embeddings, recurrent layers in both directions, a score for each label."""

    def __init__(self, cell):
        super().__init__()
        self.words = nn.Embedding(64, 16)
        self.cell = cell(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.labels = nn.Linear(24, 5)

    def forward(self, ids):
        y, _ = self.cell(self.words(ids))
        return F.log_softmax(self.labels(y), dim=-1)


@model("lstm_tagger", only_ids, SHAPES, {"ids": TEXT["ids"]}, ["scores"])
def lstm_tagger():
    return Tagger(nn.LSTM)


@model("gru_tagger", only_ids, SHAPES, {"ids": TEXT["ids"]}, ["scores"])
def gru_tagger():
    return Tagger(nn.GRU)


@model("wav2vec2", lambda b, n: {"wave": noise(b, n)}, [(2, 400), (1, 653)], {"wave": {0: "batch", 1: "samples"}}, ["hidden"])
def wav2vec2():
    config = hf.Wav2Vec2Config(**VISION, conv_dim=(16, 16, 16), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 2), num_feat_extract_layers=3,
                               num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4, vocab_size=32)
    return Pick(hf.Wav2Vec2Model._from_config(config, attn_implementation="sdpa"), ["input_values"], ["last_hidden_state"])


@model("whisper_encoder", lambda b: {"mel": noise(b, 16, 24)}, [(2,), (3,)], {"mel": {0: "batch"}}, ["hidden"])
def whisper_encoder():
    config = hf.WhisperConfig(d_model=32, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=48, decoder_layers=1,
                              decoder_attention_heads=4, decoder_ffn_dim=48, num_mel_bins=16, max_source_positions=12, vocab_size=64,
                              pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    inner = hf.WhisperModel._from_config(config, attn_implementation="sdpa").get_encoder()
    return Pick(inner, ["input_features"], ["last_hidden_state"])


@model("mamba", lambda b: {"ids": ids(b, 6)}, [(2,), (3,)], {"ids": {0: "batch"}}, ["logits"])
def mamba():
    config = hf.MambaConfig(hidden_size=16, num_hidden_layers=2, state_size=4, vocab_size=64, expand=2, time_step_rank=2)
    return Pick(hf.MambaForCausalLM._from_config(config), ["input_ids"], ["logits"], use_cache=False)


@torch.jit.script
def steps(decay: torch.Tensor, drive: torch.Tensor, read: torch.Tensor):
    """The state of each step and what is read from it; a loop as long as the sequence."""
    b, n, c, d = drive.shape
    state = torch.zeros(b, c, d)
    out = torch.zeros(b, n, c)
    for i in range(n):
        state = decay[:, i] * state + drive[:, i]
        out[:, i] = (state * read[:, i, None, :]).sum(-1)
    return out


class Selective(nn.Module):
    """A selective state space: decay, input and output matrices that depend on the input, run a step at a time."""

    def __init__(self, scan):
        super().__init__()
        self.words, self.scan = nn.Embedding(64, 16), scan
        self.conv = nn.Conv1d(16, 16, 4, groups=16, padding=3)
        self.select = nn.Linear(16, 1 + 4 + 4)
        self.rate, self.out = nn.Parameter(torch.ones(16, 4)), nn.Linear(16, 64)

    def forward(self, ids):
        x = self.words(ids)
        x = F.silu(self.conv(x.transpose(1, 2))[..., : ids.shape[1]].transpose(1, 2))
        dt, write, read = self.select(x).split([1, 4, 4], dim=-1)
        dt = F.softplus(dt)
        decay = torch.exp(-dt[..., None] * torch.exp(self.rate))
        drive = dt[..., None] * write[:, :, None, :] * x[..., None]
        return self.out(self.scan(decay, drive, read))


@model("selective_loop", only_ids, SHAPES, {"ids": TEXT["ids"]}, ["logits"], exporters=("script",))
def selective_loop():
    return Selective(steps)


def scanned(decay, drive, read):
    from torch._higher_order_ops.scan import scan

    def step(state, x):
        a, b, c = x
        state = a * state + b
        return state, (state * c[:, None, :]).sum(-1)

    b, _, c, d = drive.shape
    _, y = scan(step, torch.zeros(b, c, d), (decay.transpose(0, 1), drive.transpose(0, 1), read.transpose(0, 1)))
    return y.transpose(0, 1)


@model("selective_scan", only_ids, SHAPES[:2], {"ids": TEXT["ids"]}, ["logits"], exporters=("dynamo",))
def selective_scan():
    return Selective(scanned)


class Experts(nn.Module):
    """Each token goes to two of four experts; all experts are computed and weighed."""

    def __init__(self):
        super().__init__()
        self.words, self.gate = nn.Embedding(64, 16), nn.Linear(16, 4, bias=False)
        self.up, self.down = nn.Parameter(torch.empty(4, 16, 24)), nn.Parameter(torch.empty(4, 24, 16))

    def forward(self, ids):
        x = self.words(ids)
        # Weights lie on a grid; this keeps scores from being equal.
        scores = self.gate(x) + torch.arange(4) * 0.0137
        weights, at = torch.topk(scores.softmax(-1), 2, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        share = torch.zeros(*x.shape[:2], 4).scatter(-1, at, weights)
        h = F.gelu(torch.einsum("bsd,edf->besf", x, self.up))
        y = torch.einsum("besf,efd->besd", h, self.down)
        return torch.einsum("bse,besd->bsd", share, y)


@model("experts", only_ids, SHAPES, {"ids": TEXT["ids"]}, ["hidden"])
def experts():
    return Experts()


class Sparse(nn.Module):
    """Each expert is given its own tokens only: how many depends on the data."""

    def __init__(self):
        super().__init__()
        self.words, self.gate = nn.Embedding(64, 16), nn.Linear(16, 3, bias=False)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, ids):
        x = self.words(ids).reshape(-1, 16)
        best = (self.gate(x) + torch.arange(3) * 0.0137).argmax(-1)
        y = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            at = torch.nonzero(best == i).squeeze(1)
            y = y.index_add(0, at, expert(x[at]))
        return y.reshape(*ids.shape, 16)


@model("sparse_experts", only_ids, SHAPES, {"ids": TEXT["ids"]}, ["hidden"])
def sparse_experts():
    return Sparse()


class Causal(nn.Module):
    """A block as people write it by hand: one product for q, k and v, a lower triangle, and the tanh form of gelu."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(64, 32), nn.Embedding(32, 32)
        self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        self.register_buffer("triangle", torch.tril(torch.ones(32, 32)).view(1, 1, 32, 32))

    def forward(self, ids):
        b, s = ids.shape
        x = self.words(ids) + self.places(torch.arange(s))
        q, k, v = self.qkv(self.norm1(x)).split(32, dim=2)
        q, k, v = (t.view(b, s, 4, 8).transpose(1, 2) for t in (q, k, v))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / 8**0.5)
        scores = scores.masked_fill(self.triangle[:, :, :s, :s] == 0, float("-inf"))
        y = (F.softmax(scores, dim=-1) @ v).transpose(1, 2).contiguous().view(b, s, 32)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


@model("causal_by_hand", only_ids, SHAPES, {"ids": TEXT["ids"]}, ["hidden"])
def causal_by_hand():
    return Causal()


class Multihead(nn.Module):
    """PyTorch's own encoder layers with a mask of the padding."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(64, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 48, batch_first=True, norm_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids, mask):
        return self.layers(self.words(ids), src_key_padding_mask=mask == 0)


# `script` writes down batch and length of the first call.
@model("torch_encoder", text, SHAPES[:2], TEXT, ["hidden"], exporters=("dynamo",))
def torch_encoder():
    return Multihead()
