"""Sphinx's configuration of the site that `build.py` builds. Its pages load nothing from elsewhere."""

import os

from dcpred.version import __version__

project = "dcpred"
author = "the dcpred developers"
copyright = author
version = release = __version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["files", "gallery_scripts"]
highlight_language = "text"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
smartquotes = False

toc_object_entries_show_parents = "hide"
default_role = "literal"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

html_theme = "pydata_sphinx_theme"
html_title = "dcpred"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_favicon = "static/icon.svg"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "dcpred", "image_light": "static/icon.svg", "image_dark": "static/icon.svg"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_nav_level": 2,
    "show_prev_next": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_context = {"default_mode": "auto"}
html_sidebars = {"index": []}

sphinx_gallery_conf = {
    "examples_dirs": ["gallery_scripts"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "capture_repr": (),
    "image_scrapers": ("matplotlib",),
    "plot_gallery": os.environ.get("DCPRED_GALLERY") != "none",
}
