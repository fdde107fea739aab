"""What the trainers' own loaders make of an export: trainers.py FOLDER [CHECK]...

FOLDER is what scripts/loaders.sh fills: RUN.rows.json, what `tranche view --json` says of a run, and RUN/SHAPE.parquet or .jsonl, what
`tranche export` made of it. Each loader is given the file as a user would give it, and what comes out is held to the rows: the labels to the
loss mask, the rendered text to the messages, arguments of tools to the text they were. Prints a table; a fault ends with 1. Default: all checks.
"""

import glob
import importlib.metadata
import json
import os
import sys
import tempfile
import warnings

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "WANDB_MODE": "disabled", "TRL_EXPERIMENTAL_SILENCE": "1", "CUDA_VISIBLE_DEVICES": ""}
warnings.filterwarnings("ignore")

import datasets  # noqa: E402  (after the environment)

import chat  # noqa: E402
from facts import Facts  # noqa: E402
from truth import Run  # noqa: E402

TEMP = tempfile.TemporaryDirectory()
TABLE = []
SAID = chat.tokenizer()


def told(loader, package, shape, what):
    TABLE.append(f"| {loader} | {package} {importlib.metadata.version(package)} | `{shape}` | {what} |")


def load(path):
    kind = "parquet" if path.endswith(".parquet") else "json"
    return datasets.load_dataset(kind, data_files=path, split="train", cache_dir=TEMP.name)


def render(messages, tools=None, **how):
    return SAID.apply_chat_template(messages, tools=tools, tokenize=False, **how)


def text(ids):
    return SAID.decode(ids, skip_special_tokens=False)


def learned(labels):
    return text([i for i in labels if i != -100])


def spoken(messages):
    """What an assistant said in these messages, as the template renders it."""
    return "".join(render([m]).removeprefix("<|im_start|>assistant\n").removesuffix("\n") for m in messages if m["role"] == "assistant")


def sft(dataset, model, **how):
    """TRL's SFTTrainer as it stands, two steps of training."""
    from trl import SFTConfig, SFTTrainer

    args = SFTConfig(
        output_dir=TEMP.name, max_steps=2, per_device_train_batch_size=4, max_length=None, use_cpu=True, report_to="none", save_strategy="no", logging_steps=1,
        gradient_checkpointing=False, bf16=False, disable_tqdm=True, **how,
    )
    trainer = SFTTrainer(model=model, args=args, train_dataset=dataset, processing_class=SAID)
    trainer.train()
    return trainer


def trained(trainer, f, what):
    losses = [h["loss"] for h in trainer.state.log_history if "loss" in h]
    f.check(trainer.state.global_step == 2 and len(losses) == 2 and all(0 < x < 100 for x in losses), f"{what}: two steps, losses {losses}")
    return f"two steps of training, loss {losses[-1]:.2f}" if losses else "no steps"


def over(loader):
    """All labels of an epoch as the collator hands them out."""
    return sum(int((batch["labels"] != -100).sum()) for batch in loader)


def trl_tokens(path, run, f):
    """trl-sft: the server's own ids; the loss is on what the policy sampled and on nothing else."""
    d = load(path)
    trainer = sft(d, chat.model(max(max(x) for x in d["input_ids"]) + 1))
    got = sorted((list(r["input_ids"]), list(r["labels"])) for r in trainer.train_dataset)
    f.equal("trl-sft: ids and labels are token_ids and loss_mask", got == run.trained(), True)
    n = over(trainer.get_train_dataloader())
    f.equal("trl-sft: trained tokens", n, run.mask_sum())
    told("TRL `SFTTrainer`", "trl", os.path.basename(path), f"{len(d)} rows, labels ⇔ loss_mask, {n} trained tokens = Σ loss_mask; {trained(trainer, f, 'trl-sft')}")


def keys_of_nothing(rows, column):
    """Keys of messages that a row does not have and the loader made up."""
    return sorted({k for r in rows for m in r[column] for k, v in m.items() if v is None and k != "content"})


def trl_chats(path, run, tools, f):
    """messages: the text that is trained on is what the template makes of the row's messages."""
    shape = os.path.basename(path)
    d = load(path)
    trainer = sft(d, chat.model(len(SAID)), assistant_only_loss=True)
    got = sorted((text(r["input_ids"]), learned(r["labels"])) for r in trainer.train_dataset)
    want = sorted((render(m, t), spoken(m)) for m, t in zip(run.chats(), tools))
    f.check(got == want, f"{shape}: the rendered text or what is trained of it is another: {first_difference(got, want)}")
    made_up = ", ".join(keys_of_nothing(d, "messages")) or "none"
    told("TRL `SFTTrainer`, assistant only", "trl", shape, f"{len(d)} rows, rendered text = messages and tools of the row; keys that the loader adds as null: {made_up}; {trained(trainer, f, shape)}")


def trl_completions(path, run, tools, f):
    shape = os.path.basename(path)
    d = load(path)
    trainer = sft(d, chat.model(len(SAID)))
    got = sorted((text(r["input_ids"]), learned(r["labels"])) for r in trainer.train_dataset)
    want = sorted((render(p + c, t), render(p + c, t).removeprefix(render(p, t, add_generation_prompt=True))) for (p, c), t in zip(run.split(), tools))
    f.check(got == want, f"{shape}: {first_difference(got, want)}")
    told("TRL `SFTTrainer`, completion only", "trl", shape, f"{len(d)} rows, trained text = completion; {trained(trainer, f, shape)}")


def first_difference(got, want):
    if len(got) != len(want):
        return f"{len(got)} rows, expected {len(want)}"
    return next((f"{str(g)[:600]}\nexpected {str(w)[:600]}" for g, w in zip(got, want) if g != w), "none")


def trl_dpo(path, run, tools, f):
    from trl import DPOConfig, DPOTrainer

    shape = os.path.basename(path)
    d = load(path)
    args = DPOConfig(output_dir=TEMP.name, max_steps=2, per_device_train_batch_size=2, max_length=None, use_cpu=True, report_to="none", save_strategy="no", logging_steps=1,
                     gradient_checkpointing=False, bf16=False, disable_tqdm=True)
    trainer = DPOTrainer(model=chat.model(len(SAID)), ref_model=chat.model(len(SAID)), args=args, train_dataset=d, processing_class=SAID)
    trainer.train()
    said = {render(p + c, t): r for (p, c), t, r in zip(run.split(), tools, run.rows)}
    for r in trainer.train_dataset:
        good, bad = (said.get(text(list(r["prompt_ids"]) + list(r[k]))) for k in ("chosen_ids", "rejected_ids"))
        if f.check(good and bad, f"{shape}: a pair is no rendering of two rows: {text(r['prompt_ids'])[:300]}"):
            f.check(good["group_id"] == bad["group_id"] and good["reward"] > bad["reward"], f"{shape}: {good['episode_id']} is not better than {bad['episode_id']}")
    pairs = sum(len({r["reward"] for r in g if r["reward"] is not None}) > 1 for g in run.groups().values())
    f.equal(f"{shape}: pairs", len(d), pairs)
    told("TRL `DPOTrainer`", "trl", shape, f"{len(d)} pairs, one of each group whose rewards differ, the better one chosen; {trained(trainer, f, shape)}")


def trl_grpo(path, run, f):
    """The prompts of a data set for verl are those of TRL's GRPO too; a reward function gets the other columns."""
    from trl import GRPOConfig, GRPOTrainer

    shape, seen = os.path.basename(path), []
    d = load(path)

    def reward(prompts, completions, reward_model, **columns):
        seen.extend((p, m["ground_truth"]) for p, m in zip(prompts, reward_model))
        return [float(len(c[0]["content"])) for c in completions]

    args = GRPOConfig(output_dir=TEMP.name, max_steps=2, per_device_train_batch_size=4, num_generations=2, max_completion_length=8, use_cpu=True, report_to="none", save_strategy="no",
                      logging_steps=1, gradient_checkpointing=False, bf16=False, disable_tqdm=True)
    trainer = GRPOTrainer(model=chat.model(len(SAID)), reward_funcs=reward, args=args, train_dataset=d, processing_class=SAID)
    trainer.train()
    known = {(json.dumps(p), r["reward_model"]["ground_truth"]) for (p, _), r in zip(run.split(), run.rows)}
    for prompt, truth in seen:
        f.check((json.dumps(chat_only(prompt)), truth) in known, f"{shape}: GRPO saw a prompt or an answer that no row has: {prompt}, {truth}")
    f.check(trainer.state.global_step == 2 and seen, f"{shape}: {trainer.state.global_step} steps of GRPO")
    told("TRL `GRPOTrainer`", "trl", shape, f"{len(d)} prompts; two steps of training, {len(seen)} calls of a reward function with the ground truth beside them")


def chat_only(messages):
    return [{k: v for k, v in m.items() if v is not None or k == "content"} for m in messages]


def verl_rl(path, run, f):
    from omegaconf import OmegaConf
    from torch.utils.data import DataLoader
    from verl.utils.dataset.rl_dataset import RLHFDataset, collate_fn

    config = OmegaConf.create({"cache_dir": TEMP.name, "prompt_key": "prompt", "max_prompt_length": 4096, "filter_overlong_prompts_workers": 1, "return_raw_chat": True})
    d = RLHFDataset(data_files=path, tokenizer=SAID, config=config)
    tasks, n = run.tasks(), 0
    f.equal("verl-rl: rows", len(d), len(tasks))
    wanted = {json.dumps(p): r for (p, _), r in zip(run.split(), run.rows)}
    for batch in DataLoader(d, batch_size=8, collate_fn=collate_fn):
        for prompt, model, source in zip(batch["raw_prompt"], batch["reward_model"], batch["data_source"]):
            row = wanted.get(json.dumps(chat_only(prompt)))
            n += f.check(row and model["ground_truth"] == row["reward_model"]["ground_truth"] and source == row["data_source"], f"verl-rl: {prompt} {model} {source}")
    f.equal("verl-rl: rows out of the DataLoader", n, len(tasks))
    told("verl `RLHFDataset`", "verl", os.path.basename(path), f"{n} prompts through a DataLoader with verl's collate_fn: prompt, ground truth and data_source of each task")


def verl_sft(path, run, tools, f, text_of_tools=False):
    from verl.utils.dataset.multiturn_sft_dataset import MultiTurnSFTDataset

    class ToolsAsText(MultiTurnSFTDataset):
        """data.custom_cls of verl: tools that have no one type in Parquet come as JSON text."""

        def _read_files_and_process(self):
            super()._read_files_and_process()
            self.tools = [json.loads(t) if t else None for t in self.tools]

    kind = ToolsAsText if text_of_tools else MultiTurnSFTDataset
    d = kind(parquet_files=path, tokenizer=SAID, config={"pad_mode": "no_padding", "truncation": "error", "max_length": 1 << 16})
    got, n = [], 0
    for i in range(len(d)):
        item = d[i]
        ids, mask = item["input_ids"].tolist(), item["loss_mask"].tolist()
        got.append((text(ids), text([t for t, m in zip(ids, mask) if m])))
        n += sum(mask)
    want = sorted((render(m, t), "".join(spoken([x]) + "\n" for x in m if x["role"] == "assistant")) for m, t in zip(run.chats(), tools))
    shape = os.path.basename(path)
    f.check(sorted(got) == want, f"{shape}: {first_difference(sorted(got), want)}")
    how = "verl `MultiTurnSFTDataset`" + (", tools as text by a `data.custom_cls`" if text_of_tools else "")
    told(how, "verl", shape, f"{len(d)} rows, rendered text = messages and tools of the row, {n} trained tokens = what the assistant said")


def verl_sft_text(path, run, tools, f):
    verl_sft(path, run, tools, f, text_of_tools=True)


def skyrl(path, run, f):
    from skyrl.train.dataset import PromptDataset

    d = PromptDataset(datasets=path, tokenizer=SAID, max_prompt_length=4096, num_workers=1)
    shape, wanted = os.path.basename(path), {json.dumps(p): r for (p, _), r in zip(run.split(), run.rows)}
    items = d.collate_fn([d[i] for i in range(len(d))])
    f.equal(f"{shape}: rows", len(items), len(run.tasks()))
    for item in items:
        row, spec = wanted.get(json.dumps(chat_only(item["prompt"]))), item["env_extras"]["reward_spec"]
        f.check(row and spec["ground_truth"] == row["reward_model"]["ground_truth"] and item["env_class"] == row["env_class"], f"{shape}: {item}")
    told("SkyRL `PromptDataset`", "skyrl", shape, f"{len(items)} prompts with env_class and ground truth")


def atropos(path, run, f):
    """The real API of Atropos, in this process: every group is posted, and comes back to a trainer."""
    from fastapi.testclient import TestClient

    from atroposlib.api.server import app

    with open(path) as file:
        groups = [json.loads(line) for line in file]
    rows, tokens = 0, 0
    with TestClient(app) as api:
        size = sum(len(g["tokens"]) for g in groups)
        api.post("/register", json={"wandb_group": "", "wandb_project": "", "batch_size": size, "max_token_len": 1 << 16, "checkpoint_dir": "", "save_checkpoint_interval": 0,
                                    "starting_step": 0, "num_steps": 1}).raise_for_status()
        for g in groups:
            answer = api.post("/scored_data", json=g)
            f.check(answer.status_code == 200 and answer.json()["status"] == "received", f"atropos: {answer.status_code} {answer.text[:300]}")
        got = []
        for g in api.get("/batch").json()["batch"] or []:
            rows += len(g["tokens"])
            for ids, mask in zip(g["tokens"], g["masks"]):
                got.append((ids, mask))
                tokens += sum(m != -100 for m in mask)
    f.equal("atropos: ids and masks are token_ids and loss_mask", sorted(got) == run.trained(), True)
    f.equal("atropos: trained tokens", tokens, run.mask_sum())
    told("Atropos `/scored_data`, `/batch`", "atroposlib", os.path.basename(path), f"{len(groups)} groups, {rows} sequences posted and got back, {tokens} trained tokens = Σ loss_mask")


def hugging_face(folder, f):
    """Every export is one data set to load_dataset."""
    n = {}
    for path in sorted(p for kind in ("parquet", "jsonl") for p in glob.glob(os.path.join(folder, "*", "*." + kind))):
        d = f.run(path, load, path)
        if d is not None and f.check(len(d) > 0, f"{path}: no rows"):
            n[os.path.relpath(path, folder)] = len(d)
    told("Hugging Face `load_dataset`", "datasets", "all", "; ".join(f"{name} {rows}" for name, rows in n.items()))


def main():
    folder, f = sys.argv[1], Facts()
    arithmetic, calls, one = (Run(os.path.join(folder, name + ".rows.json")) for name in ("arithmetic", "calls", "one"))

    def at(*name):
        return os.path.join(folder, *name)

    def offered(run):
        """Its rows name built-in tools; what the model was told of them is in the export."""
        with open(at(run, "messages.jsonl")) as file:
            return [json.loads(t) if t else None for t in (json.loads(line)["tools"] for line in file)]

    arithmetic_tools = offered("arithmetic")
    for name, check, *args in (
        ("trl-sft", trl_tokens, at("arithmetic", "trl-sft.parquet"), arithmetic),
        ("trl-sft jsonl", trl_tokens, at("arithmetic", "trl-sft.jsonl"), arithmetic),
        ("messages", trl_chats, at("arithmetic", "messages.parquet"), arithmetic, arithmetic_tools),
        ("messages jsonl", trl_chats, at("calls", "messages.jsonl"), calls, calls.tools()),
        ("prompt-completion", trl_completions, at("arithmetic", "prompt-completion.parquet"), arithmetic, arithmetic_tools),
        ("prompt-completion jsonl", trl_completions, at("calls", "prompt-completion.jsonl"), calls, calls.tools()),
        ("dpo", trl_dpo, at("arithmetic", "dpo.parquet"), arithmetic, arithmetic_tools),
        ("grpo", trl_grpo, at("arithmetic", "verl-rl.parquet"), arithmetic),
        ("verl-rl", verl_rl, at("arithmetic", "verl-rl.parquet"), arithmetic),
        ("verl-sft", verl_sft, at("one", "verl-sft.parquet"), one, offered("one")),
        ("verl-sft text", verl_sft_text, at("arithmetic", "verl-sft-text.parquet"), arithmetic, arithmetic_tools),
        ("skyrl", skyrl, at("arithmetic", "skyrl.parquet"), arithmetic),
        ("atropos", atropos, at("arithmetic", "atropos.jsonl"), arithmetic),
        ("datasets", hugging_face, folder),
    ):
        if len(sys.argv) > 2 and name not in sys.argv[2:]:
            continue
        before = len(f.faults)
        f.run(name, check, *args, f)
        print(f"{name}: {'ok' if len(f.faults) == before else 'FAULT'}", file=sys.stderr, flush=True)
    print("| loader | version | shape | what was loaded and found equal |\n|---|---|---|---|")
    print("\n".join(TABLE))
    print(f"\n{f.checks} checks, {len(f.faults)} faults; torch {importlib.metadata.version('torch')}, transformers {importlib.metadata.version('transformers')}, Python {sys.version.split()[0]}")
    for fault in f.faults:
        print("FAULT", fault, file=sys.stderr)
    sys.exit(1 if f.faults else 0)


main()
