"""Shows a plan: as text, in the languages of Mermaid and Graphviz, and as SVG."""
