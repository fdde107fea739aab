package ns

import "strings"

// fixedEnv is what every program gets: the same on every host. One malloc arena, because each reserves 64 MiB of address space, which
// is what is limited where there is no control group.
func fixedEnv() []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/w", "TMPDIR=/tmp", "USER=sandbox", "LOGNAME=sandbox", "SHELL=/bin/sh", "TERM=dumb",
		"LANG=C.UTF-8", "LC_ALL=C.UTF-8", "TZ=UTC", "PYTHONHASHSEED=0", "PYTHONDONTWRITEBYTECODE=1",
		"MALLOC_ARENA_MAX=1", "OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "MKL_NUM_THREADS=1",
	}
}

// environment is the fixed one with what a command sets on top: a name appears once.
func environment(more []string) []string {
	all := fixedEnv()
	at := map[string]int{}
	for i, e := range all {
		name, _, _ := strings.Cut(e, "=")
		at[name] = i
	}
	for _, e := range more {
		name, _, _ := strings.Cut(e, "=")
		if i, ok := at[name]; ok {
			all[i] = e
			continue
		}
		at[name] = len(all)
		all = append(all, e)
	}
	return all
}
