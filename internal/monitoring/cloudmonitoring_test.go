package monitoring

import "strings"

// Sizes in Cloud Monitoring's grid of 48 columns.
const (
	mosaicWidth  = 48
	chartHeight  = 16
	scoreHeight  = 8
	headerHeight = 4
	lineHeight   = 2 // of a text
)

// googleBoards is the input of Terraform.
func googleBoards() object {
	boards := object{}
	for _, b := range Boards {
		boards[b.ID] = object{"google": b.Google, "dashboard": googleBoard(b)}
	}
	return boards
}

// googleBoard has for each row a header, its charts, and a text that says what they mean: a
// chart itself has no place for that.
func googleBoard(b Board) object {
	var tiles []object
	y := 0
	for _, row := range b.Rows {
		header := object{"title": row.Title, "sectionHeader": object{"dividerBelow": true}}
		tiles = append(tiles, tile(0, y, mosaicWidth, headerHeight, header))
		y += headerHeight
		width, height := mosaicWidth/across(row), chartHeight
		if row.Panels[0].Latest {
			height = scoreHeight
		}
		x := 0
		var texts []string
		for _, p := range row.Panels {
			if x+width > mosaicWidth {
				x, y = 0, y+height
			}
			tiles = append(tiles, tile(x, y, width, height, googleWidget(p)))
			x += width
			texts = append(texts, "**"+p.Title+"**: "+p.Description())
		}
		y += height
		text := object{"text": object{"content": strings.Join(texts, "\n\n"), "format": "MARKDOWN"}}
		tiles = append(tiles, tile(0, y, mosaicWidth, lineHeight*(len(texts)+1), text))
		y += lineHeight * (len(texts) + 1)
	}
	return object{"displayName": b.Title, "mosaicLayout": object{"columns": mosaicWidth, "tiles": tiles}}
}

// tile has no coordinate that is 0. Google's answers leave those out, and Terraform would see a
// difference with each plan.
func tile(x, y, width, height int, widget object) object {
	t := object{"width": width, "height": height, "widget": widget}
	if x > 0 {
		t["xPos"] = x
	}
	if y > 0 {
		t["yPos"] = y
	}
	return t
}

func googleWidget(p Panel) object {
	unit := p.Unit
	if unit == "1" {
		unit = "10^2.%" // the same values, shown as per cent
	}
	queries := make([]object, len(p.Queries))
	for i, q := range p.Queries {
		queries[i] = object{"prometheusQuery": q.Expr, "unitOverride": unit}
	}
	if p.Latest {
		return object{"title": p.Title, "scorecard": object{"timeSeriesQuery": queries[0]}}
	}
	var sets []object
	for i, q := range p.Queries {
		set := object{"plotType": "LINE", "timeSeriesQuery": queries[i]}
		if q.Legend != "" {
			legend := q.Legend
			if strings.Contains(q.Expr, services) { // the label that each line has
				legend = strings.Replace(legend, "{{service_name}}", "{{namespace}}", 1)
			}
			set["legendTemplate"] = strings.NewReplacer("{{", "${", "}}", "}").Replace(legend)
		}
		sets = append(sets, set)
	}
	return object{"title": p.Title, "xyChart": object{"dataSets": sets}}
}
