package monitoring

import "strings"

// The forms of Cloud Monitoring's API. It leaves out what is zero, and Terraform would see a
// difference with each plan: so is it left out here.
type (
	googleBoard struct {
		DisplayName  string `json:"displayName"`
		MosaicLayout mosaic `json:"mosaicLayout"`
	}
	mosaic struct {
		Columns int    `json:"columns"`
		Tiles   []tile `json:"tiles"`
	}
	tile struct {
		X      int    `json:"xPos,omitempty"`
		Y      int    `json:"yPos,omitempty"`
		Width  int    `json:"width"`
		Height int    `json:"height"`
		Widget object `json:"widget"`
	}
)

// Sizes in Cloud Monitoring's grid of 48 columns.
const (
	mosaicWidth  = 48
	chartWidth   = 16
	chartHeight  = 16
	scoreHeight  = 8
	headerHeight = 4
	lineHeight   = 2 // of a text
)

// googleBoards is the input of Terraform.
func googleBoards() map[string]any {
	type input struct {
		Google    bool        `json:"google"`
		Dashboard googleBoard `json:"dashboard"`
	}
	boards := map[string]any{}
	for _, b := range Boards {
		boards[b.ID] = input{b.Google, mosaicOf(b)}
	}
	return boards
}

// mosaicOf has for each row a header, its charts, and a text that says what they mean: a chart
// itself has no place for that.
func mosaicOf(b Board) googleBoard {
	var tiles []tile
	y := 0
	for _, row := range b.Rows {
		tiles = append(tiles, tile{Y: y, Width: mosaicWidth, Height: headerHeight,
			Widget: object{"title": row.Title, "sectionHeader": object{"dividerBelow": true}}})
		y += headerHeight
		width, height := chartWidth, chartHeight
		if row.Panels[0].Latest {
			width, height = mosaicWidth/len(row.Panels), scoreHeight
		}
		x := 0
		var texts []string
		for _, p := range row.Panels {
			if x+width > mosaicWidth {
				x, y = 0, y+height
			}
			tiles = append(tiles, tile{X: x, Y: y, Width: width, Height: height, Widget: googleWidget(p)})
			x += width
			texts = append(texts, "**"+p.Title+"**: "+p.Description())
		}
		y += height
		text := tile{Y: y, Width: mosaicWidth, Height: lineHeight * (len(texts) + 1),
			Widget: object{"text": object{"content": strings.Join(texts, "\n\n"), "format": "MARKDOWN"}}}
		tiles = append(tiles, text)
		y += text.Height
	}
	return googleBoard{b.Title, mosaic{mosaicWidth, tiles}}
}

func googleWidget(p Panel) object {
	queries := make([]object, len(p.Queries))
	for i, q := range p.Queries {
		queries[i] = object{"prometheusQuery": q.Expr, "unitOverride": p.Unit}
	}
	if p.Latest {
		return object{"title": p.Title, "scorecard": object{"timeSeriesQuery": queries[0]}}
	}
	var sets []object
	for i, q := range p.Queries {
		set := object{"plotType": "LINE", "timeSeriesQuery": queries[i]}
		if q.Legend != "" {
			set["legendTemplate"] = strings.NewReplacer("{{", "${", "}}", "}").Replace(q.Legend)
		}
		sets = append(sets, set)
	}
	return object{"title": p.Title, "xyChart": object{"dataSets": sets}}
}
