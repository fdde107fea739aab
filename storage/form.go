package storage

import "tranche/episode"

// formOf is nil where a message is all there is.
func formOf(i int, m episode.Message, fix *repairer) *Form {
	if m.Tagged == nil && m.Written == nil {
		return nil
	}
	f := &Form{Message: int32(i)}
	if t := m.Tagged; t != nil {
		f.ThinkOpen, f.ThinkClosed = episode.Ptr(fix.text(t.Open)), episode.Ptr(t.Closed)
	}
	if w := m.Written; w != nil {
		text := func(s string) *string { return episode.Ptr(fix.text(s)) }
		f.CallID, f.CallType, f.CallUnread = text(w.Call.ID), text(w.Call.Type), text(w.Unread)
		f.CallName, f.CallArguments = text(w.Call.Function.Name), text(w.Call.Function.Arguments)
	}
	return f
}

// restore puts into a message what formOf took from it.
func (f *Form) restore(m *episode.Message) {
	if f.ThinkOpen != nil {
		m.Tagged = &episode.Tagged{Open: *f.ThinkOpen, Closed: f.ThinkClosed != nil && *f.ThinkClosed}
	}
	if f.CallName != nil {
		m.Written = &episode.Written{Call: episode.ToolCall{ID: text(f.CallID), Type: text(f.CallType)}, Unread: text(f.CallUnread)}
		m.Written.Call.Function = episode.Function{Name: *f.CallName, Arguments: text(f.CallArguments)}
	}
}

func (f *Form) size() int {
	return 24 + size(f.ThinkOpen) + size(f.CallID) + size(f.CallType) + size(f.CallName) + size(f.CallArguments) + size(f.CallUnread)
}
