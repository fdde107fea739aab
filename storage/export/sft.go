package export

import "tranche/storage"

// ignored is the label of an id that is not learned, in PyTorch's cross entropy.
const ignored = -100

// trlSFT makes one record of each sequence: exactly the ids that were seen and sampled, loss on what was sampled. Read by TRL, trl/trainer/sft_trainer.py:
// a column input_ids says that the set is tokenised (_prepare_dataset), and labels are taken as they are. There is no seq_lengths: TRL leaves one
// as it was when it cuts the ids, and makes it itself when it packs. A row whose prefix was broken gives several records, in which each sampled id is learned once.
//
// Beware of SFTConfig.max_length, 1024 unless set: TRL cuts what is longer.
type trlSFT struct{ cfg *Config }

type trlRecord struct {
	InputIDs []int32 `json:"input_ids" parquet:"input_ids,list" parquet-element:",plain"`
	Labels   []int32 `json:"labels" parquet:"labels,list" parquet-element:",plain"`

	trained int
}

func (r trlRecord) tokens() (all, trained int) { return len(r.InputIDs), r.trained }

func newTRLSFT(cfg *Config) maker { return &trlSFT{cfg} }

func (t *trlSFT) make(rows []*storage.Row) ([]any, []string) {
	return each(rows, func(r *storage.Row) (records []any, why string) {
		all, why := t.cfg.sequences(r)
		for _, s := range all {
			records = append(records, trlRecord{s.ids, s.labels(ignored), s.trained()})
		}
		return records, why
	})
}

// skyrlSFT is the same for SkyRL, skyrl/train/dataset/pretokenized.py (load_from_pretokenized): input_ids and a loss_mask of 0 and 1 as long, unpadded.
// AReaL's SFT takes the two as well (areal/dataset/gsm8k.py).
type skyrlSFT struct{ cfg *Config }

type skyrlSFTRecord struct {
	InputIDs []int32 `json:"input_ids" parquet:"input_ids,list" parquet-element:",plain"`
	LossMask []int32 `json:"loss_mask" parquet:"loss_mask,list" parquet-element:",plain"`

	trained int
}

func (r skyrlSFTRecord) tokens() (all, trained int) { return len(r.InputIDs), r.trained }

func newSkyRLSFT(cfg *Config) maker { return &skyrlSFT{cfg} }

func (t *skyrlSFT) make(rows []*storage.Row) ([]any, []string) {
	return each(rows, func(r *storage.Row) (records []any, why string) {
		all, why := t.cfg.sequences(r)
		for _, s := range all {
			records = append(records, skyrlSFTRecord{s.ids, wide(s.mask), s.trained()})
		}
		return records, why
	})
}

func wide(mask []int8) []int32 {
	out := make([]int32, len(mask))
	for i, m := range mask {
		out[i] = int32(m)
	}
	return out
}
