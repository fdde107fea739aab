package enginesim

import (
	"fmt"
	"strings"
)

// Special tokens. Their ids follow the 256 byte tokens, whose id is the byte.
const (
	imStart   int32 = 256 // opens a message
	imEnd     int32 = 257 // ends a message; what the policy samples to stop
	endOfText int32 = 258
	firstWord int32 = 259
)

func specials() []string { return []string{"<|im_start|>", "<|im_end|>", "<|endoftext|>"} }

// vocabulary lists the text of every token by id: bytes, specials, then pieces. The order is part of the tokenizer: changing
// it changes every id.
func vocabulary() []string {
	all := make([]string, 0, 6000)
	seen := map[string]bool{}
	for b := range 256 {
		all = append(all, string([]byte{byte(b)}))
		seen[all[b]] = true
	}
	add := func(pieces ...string) {
		for _, p := range pieces {
			if !seen[p] {
				seen[p] = true
				all = append(all, p)
			}
		}
	}
	add(specials()...)
	add(fragments()...)
	for n := range 1000 { // digits in groups of up to three, left to right
		add(fmt.Sprint(n), fmt.Sprintf("%02d", n), fmt.Sprintf("%03d", n))
	}
	for _, w := range strings.Fields(commonWords) {
		add(" "+w, w, strings.ToUpper(w[:1])+w[1:], " "+strings.ToUpper(w[:1])+w[1:])
	}
	for _, s := range strings.Fields(wordEnds) {
		add(s)
	}
	return all
}

// fragments are pieces of chat templates, JSON and white space that a trained vocabulary would hold too.
func fragments() []string {
	out := []string{
		"\n\n", "  ", "    ", "        ", ", ", ". ", ": ", "; ", "? ", "! ", " (", ") ", "...", "####", "#### ", " = ", " + ", " - ", " * ", " / ",
		"<tool_call>", "</tool_call>", "<tools>", "</tools>", "{\"", "\"}", "\"}}", "\": ", "\": \"", "\", \"", "\":", "\",\"", "\":\"", "}\n", "{\"name\": \"",
		"\", \"arguments\": ", "\"arguments\"", "\"type\"", "\"function\"", "\"description\"", "\"parameters\"", "\"properties\"", "\"required\"", "\"string\"",
		"\"object\"", "\"number\"", "assistant\n", "user\n", "system\n", "tool\n", "'s", "'t", "'re", "'ll", "'ve", "'m", "'d", "http://", "https://", "==", "!=", "->", "//",
	}
	for _, a := range "bcdfghjklmnprstvwz" {
		for _, v := range "aeiouy" {
			out = append(out, string(a)+string(v), string(v)+string(a))
		}
	}
	return out
}

const wordEnds = `ing ed er est ly tion sion ment ness able ible ful less ous ive al ial ity ies es th st nd rd ck sh ch ph qu ss ll tt nn mm
ent ant ence ance ist ism ize ise ate ure age ish ward wise dom hood ship ery ory ary ght ould ound ight ough atch itch oint ain ear eer oor our own`

const commonWords = `a able about above accept across act action actual add addition adult after again against age ago agree air all allow almost alone
along already also although always am among amount an and animal another answer any anyone anything appear apple apples apply area argue arm around arrive art
article as ask assume at attack attention average avoid away baby back bad bag bags bakery ball bank bar base basket be beat beautiful became because become bed
been before began begin behavior behind being believe below benefit beside best better between beyond big bill bird birds bit black blood blue board boat body
book books both bottom bought box boxes boy boys break bring broke brother brought brown build building built bus business but buy by calculate calculator
call called came can candle candy capital car card cards care carefully carry cars case cases cat catch cause cell cent center central cents century certain
chair chairs chance change character charge check child children choice choose church circle city class clear clearly close clothes coach coin coins cold
collect college color come comes common community company compare compute concern condition consider contain continue control cook cookies cool copy corner
correct cost costs could count country couple course court cover cream create cultural cup current cut daily dark data date daughter day days dead deal death
debate decade decide decision deep degree demand describe design despite detail develop did die difference different difficult dinner direct direction discover
discuss distance divide divided division do doctor does dog dogs dollar dollars done door double down dozen draw drawer drive drop during each early earn earned
earns earth east easy eat eats economic edge education effect effort egg eggs eight either election eleven else empty end energy engine enjoy enough enter
entire environment equal equals equation even evening event ever every everyone everything evidence exactly example except exist expect experience explain
expression eye face fact factor fail fall family far farm farmer fast father fear feel feet fell felt few field fifteen fifty fifth fight figure fill final
finally find fine finger finish fire firm first fish five floor flower flowers fly follow following food foot for force foreign forget form former forty forward
found four fourth fraction free friend friends from front fruit full function fund future game games garden gas gave general generation get gets girl girls give
given gives glass go goal goes gold gone good got government grade great green grew ground group groups grow growth guess gun guy had hair half hand hands hang
happen happy hard has have he head health hear heard heart heat heavy held help hence her here herself high hill him himself his history hit hold home hope
horse hospital hot hotel hour hours house houses how however huge human hundred husband ice idea identify if image imagine impact important in inch inches
include including increase indeed indicate individual industry information input inside instead interest into invest is island issue it item items its itself
job join juice jump just keep kept key kid kids kill kilometers kind king kitchen knew know known lady land language large last late later laugh law lay lead
leader learn least leave left leg legal less let letter letters level library lie life light like likely line lines list listen little live local long longer
look lose loss lost lot love low lunch machine made magazine main maintain major make makes making man manage many map mark market marbles match material
math matter may maybe me mean means measure meet meeting member men mention message met meter meters method middle might mile miles military milk million mind
minus minute minutes miss mistake model modern moment money month months more morning most mother mouth move movement movie much multiply multiplied music must
my name nation national natural nature near nearly necessary need needed needs network never new news newspaper next nice night nine no none nor north not note
nothing notice now number numbers object occur of off offer office officer official often oh oil old on once one only onto open operation option or orange
oranges order original other others our out outside over own owner page pages paid pain paint pair paper parent park part particular partner parts party pass past
patient pattern pay pays peace pen pencil pencils people per percent perfect perform perhaps period person phone physical pick picture pictures piece pieces pizza
place plan plant plants play player please plus point police policy political poor popular population position possible pound pounds power practice prepare
present president pressure pretty prevent price prices private probably problem process produce product production profit program project property protect prove
provide public pull purpose push put quality quarter question quick quickly quiet quite race radio raise ran range rate rather reach read ready real reality
realize really reason reasoning receive recent red reduce reflect region relate relationship remain remaining remains remember remove report represent require
research resource respond response rest result results return reveal rich right rise risk river road rock role room rooms round row rows rule run running safe
said salary sale sales same sat save saved saw say says school science score sea season seat second section security see seeds seek seem seen sell sells send
senior sense sent separate series serious serve service set seven several shake shall shape share she sheep shelf ship shirt shirts shoe shoes shoot shop short
should shoulder show shows shut side sign significant similar simple simplify simply since sing single sister sit site situation six size skill skin sky sleep slices
slow slowly small smile so social society soft sold soldier solution solve some someone something sometimes son song soon sort sound source south space speak
special specific speech speed spend spends spent spoke sport spring square staff stage stand standard star start state statement station stay step steps stickers
still stock stone stood stop store story straight street strong structure student students study stuff style subject submit subtract success such sudden sugar sugar
suggest suit sum summer sun supply support sure surface system table take taken takes talk tall task tasks tax teach teacher team technology television tell ten tend
term test text than thank that the their them themselves then theory there therefore these they thing things think third thirteen thirty this those though thought
thousand threat three through throughout throw thus ticket tickets time times to today together told tomorrow tonight too took tool tools top total toward town
toys trade tradition train travel treat treatment tree trees trial trip trouble truck true trust truth try turn turns twelve twenty twice two type under
understand unit units until up upon us use used user uses using usually value values various very victim view visit visitor voice vote wait walk wall want war warm was wash
watch water way ways we weapon wear week weekend weeks weight well went were west what whatever when where whether which while white who whole whom whose why
wide wife will win wind window winter wish with within without woman women wonder wood word words work worked worker works world worry worth would write
writer written wrong wrote yard year years yellow yes yesterday yet you young your yourself zero zoo`
