package main

import (
	"bytes"
	"encoding/json"
)

// The lines of a batch may have megabytes, nearly all of it in one string. encoding/json reads each part of a document twice at every level
// it is taken apart; here the document is checked once and then split without looking into strings.

// splitObject splits a valid JSON object into its fields as they stand in it, of a name that comes twice the last; nil when it is no object.
func splitObject(doc []byte) map[string]json.RawMessage {
	i := pastSpace(doc, 0)
	if i == len(doc) || doc[i] != '{' {
		return nil
	}
	fields := map[string]json.RawMessage{}
	for i = pastSpace(doc, i+1); doc[i] != '}'; {
		end := pastString(doc, i)
		name := textOf(doc[i:end])
		begin := pastSpace(doc, pastSpace(doc, end)+1) // behind the colon
		end = pastValue(doc, begin)
		fields[name] = doc[begin:end:end]
		if i = pastSpace(doc, end); doc[i] == ',' {
			i = pastSpace(doc, i+1)
		}
	}
	return fields
}

// splitList splits a valid JSON list into its items as they stand in it; nil when it is no list.
func splitList(doc []byte) []json.RawMessage {
	i := pastSpace(doc, 0)
	if i == len(doc) || doc[i] != '[' {
		return nil
	}
	items := []json.RawMessage{}
	for i = pastSpace(doc, i+1); doc[i] != ']'; {
		end := pastValue(doc, i)
		items = append(items, doc[i:end:end])
		if i = pastSpace(doc, end); doc[i] == ',' {
			i = pastSpace(doc, i+1)
		}
	}
	return items
}

func pastSpace(doc []byte, i int) int {
	for i < len(doc) && (doc[i] == ' ' || doc[i] == '\t' || doc[i] == '\n' || doc[i] == '\r') {
		i++
	}
	return i
}

// pastValue is the end of the value that begins at i.
func pastValue(doc []byte, i int) int {
	switch doc[i] {
	case '"':
		return pastString(doc, i)
	case '{', '[':
		return pastNest(doc, i)
	}
	for i < len(doc) && !bytes.ContainsRune([]byte(" \t\r\n,]}"), rune(doc[i])) {
		i++
	}
	return i
}

// pastNest is the end of the object or list that begins at i.
func pastNest(doc []byte, i int) int {
	depth := 0
	for {
		switch doc[i] {
		case '"':
			i = pastString(doc, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		}
		if i++; depth == 0 {
			return i
		}
	}
}

// pastString is the end of the string that begins at i: behind the first quote with an even number of backslashes before it.
func pastString(doc []byte, i int) int {
	begin := i + 1
	for i = begin; ; i++ {
		i += bytes.IndexByte(doc[i:], '"')
		n := 0
		for i-n > begin && doc[i-n-1] == '\\' {
			n++
		}
		if n%2 == 0 {
			return i + 1
		}
	}
}
