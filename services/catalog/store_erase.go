package catalog

// userRows has a statement for each table, by name. The statement counts a user's rows that are not
// tombstones. The copy of a rebuild is not counted. It has the same rows, because each write of a
// row also writes its copy.
var userRows = []userCount{
	{"videos", `SELECT count(*) FROM video_projection WHERE uploader_id = $1 AND deleted_at IS NULL`},
	{"engagements", `SELECT count(*) FROM video_user_engagements_projection WHERE user_id = $1 AND deleted_at IS NULL`},
}

type userCount struct{ name, sql string }
