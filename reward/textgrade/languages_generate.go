//go:build ignore

// Command languages_generate makes languages.gz of the profiles of langdetect 1.0.9 (PyPI, Apache-2.0; Nakatani Shuyo's
// language-detection): go run languages_generate.go FOLDER, the folder langdetect/profiles of its source.
//
// A line of the file is an n-gram of one to three characters (_ for a space), a tab, and two bytes for each language that has it: the
// language ('A' + its place in the first line) and how often (see quantum).
package main

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	least   = 1e-4 // a rarer n-gram is as good as unseen
	quantum = 8    // steps to twice as often
)

type profile struct {
	Freq   map[string]float64 `json:"freq"`
	NWords []float64          `json:"n_words"`
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: go run languages_generate.go FOLDER")
	}
	files, err := os.ReadDir(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	var codes []string
	grams := map[string][]byte{}
	for _, f := range files {
		if err := add(filepath.Join(os.Args[1], f.Name()), byte('A'+len(codes)), grams); err != nil {
			log.Fatal(err)
		}
		codes = append(codes, f.Name())
	}
	if err := write(codes, grams); err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(codes), "languages,", len(grams), "n-grams")
}

func add(path string, language byte, grams map[string][]byte) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var p profile
	if err := json.Unmarshal(text, &p); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for gram, n := range p.Freq {
		length := utf8.RuneCountInString(gram)
		if length > 3 || strings.ContainsFunc(gram, func(r rune) bool { return r > '\uac00' && r <= '\ud7a3' }) { // those are read as 가
			continue
		}
		if often := n / p.NWords[length-1]; often >= least {
			step := byte('!' + min(93, int(math.Round(quantum*math.Log2(often/least)))))
			key := strings.ReplaceAll(gram, " ", "_")
			grams[key] = append(grams[key], language, step)
		}
	}
	return nil
}

func write(codes []string, grams map[string][]byte) error {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	fmt.Fprintln(z, strings.Join(codes, " "))
	for _, gram := range slices.SortedFunc(maps.Keys(grams), cmp.Compare) {
		fmt.Fprintf(z, "%s\t%s\n", gram, grams[gram])
	}
	if err := z.Close(); err != nil {
		return err
	}
	return os.WriteFile("languages.gz", b.Bytes(), 0o644)
}
