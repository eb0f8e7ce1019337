"""The pages of `soul view`, and the playground."""
