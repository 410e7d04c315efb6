// Style sheets are bundled apart from the script.
declare module '*.css';
