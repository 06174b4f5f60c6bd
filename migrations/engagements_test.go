package migrations_test

// engagementsOfTwoTenants has one row of each tenant in each table of engagements.
const engagementsOfTwoTenants = `
	INSERT INTO video.engagements (user_id, video_id, liked, bookmarked, watched_seconds, version, created_at, updated_at, tenant_id)
	SELECT gen_random_uuid(), video_id, true, true, 1, 1, now(), now(), tenant_id FROM video.videos;
	INSERT INTO catalog.video_user_engagements_projection (user_id, video_id, liked, version, updated_at, tenant_id)
	SELECT user_id, video_id, true, 1, now(), tenant_id FROM video.engagements`
